output "client_id" {
  value = module.bigfleet.client_id
}

output "tenant_id" {
  value = module.bigfleet.tenant_id
}

output "helm_values" {
  description = "terraform output -raw helm_values > eastus.values.yaml"
  value       = module.bigfleet.helm_values
}
