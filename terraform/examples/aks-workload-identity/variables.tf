variable "aks_name" {
  description = "The AKS cluster that the daemon runs in; its OIDC issuer and workload identity are on."
  type        = string
}

variable "aks_resource_group_name" {
  description = "Resource group of the cluster."
  type        = string
}
