output "client_id" {
  description = "Client id of the identity or service principal."
  value       = local.client_id
}

output "tenant_id" {
  description = "Tenant of the subscription."
  value       = local.tenant_id
}

output "principal_id" {
  description = "Object id that the roles are assigned to."
  value       = local.principal_id
}

output "identity_id" {
  description = "Id of the identity, to attach it to a VM; null with `service_principal`."
  value       = one(azurerm_user_assigned_identity.daemon[*].id)
}

output "helm_values" {
  description = "Values of the chart (YAML): `terraform output -raw helm_values > eastus.values.yaml`."
  value = yamlencode({
    location = var.location
    provider = "azure-${var.location}"
    azure = merge(
      {
        subscriptionId = data.azurerm_client_config.current.subscription_id
        resourceGroup  = var.resource_group_name
      },
      { for key, value in { subnetId = var.subnet_id } : key => value if value != null },
      var.public_ip ? { publicIp = true } : {},
      var.bootstrap_method == "none" ? { bootstrapMethod = "none" } : {},
      local.login.azure,
    )
    serviceAccount = merge({ name = local.service_account }, local.login.service_account)
    state          = { enabled = true, persistence = { enabled = true, size = "1Gi" } }
  })
}
