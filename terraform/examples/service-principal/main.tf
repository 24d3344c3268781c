# The daemon logs in as a service principal, from anywhere. Terraform never sees the secret.

module "bigfleet" {
  source = "../.."

  name                = "bigfleet-azure-${var.location}"
  location            = var.location
  resource_group_name = var.resource_group_name
  subnet_id           = var.subnet_id
  oidc_issuer_url     = null

  service_principal = {
    client_id = var.client_id
    object_id = var.object_id
  }
}
