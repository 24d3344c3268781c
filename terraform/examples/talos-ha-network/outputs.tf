output "offerings" {
  description = "terraform output -raw offerings > offerings.json"
  value       = jsonencode(local.offerings)
}

output "helm_values" {
  description = "terraform output -raw helm_values > values.yaml"
  value       = module.bigfleet.helm_values
}

output "load_balancer_ip" {
  description = "Address of the Kubernetes API."
  value       = module.network.load_balancer_ip
}
