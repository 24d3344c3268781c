# The daemon runs on an AKS cluster that is there already, in the region of its machines. Resource group, network and
# identity are made.

data "azurerm_kubernetes_cluster" "this" {
  name                = var.aks_name
  resource_group_name = var.aks_resource_group_name
}

locals {
  location = data.azurerm_kubernetes_cluster.this.location
}

resource "azurerm_resource_group" "machines" {
  name     = "bigfleet-${local.location}"
  location = local.location
}

module "network" {
  source = "../../modules/network"

  name                = azurerm_resource_group.machines.name
  location            = local.location
  resource_group_name = azurerm_resource_group.machines.name
}

module "bigfleet" {
  source = "../.."

  name                = "bigfleet-azure-${local.location}"
  location            = local.location
  resource_group_name = azurerm_resource_group.machines.name
  oidc_issuer_url     = data.azurerm_kubernetes_cluster.this.oidc_issuer_url
  subnet_id           = module.network.subnet_id
}
