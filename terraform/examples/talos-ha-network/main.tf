# Talos machines without zones: availability set, load balancer on 6443, public addresses, and the daemon's rights on all
# that its machines refer to.

resource "azurerm_resource_group" "this" {
  name     = "${var.cluster}-rg"
  location = var.location
}

module "network" {
  source = "../../modules/network"

  name                = var.cluster
  location            = var.location
  resource_group_name = azurerm_resource_group.this.name
  nsg_profile         = "talos-cilium"
  availability_set    = true
  load_balancer       = true
}

module "bigfleet" {
  source = "../.."

  name                = "bigfleet-${var.cluster}"
  location            = var.location
  resource_group_name = azurerm_resource_group.this.name
  oidc_issuer_url     = null
  service_principal   = var.service_principal
  bootstrap_method    = "none"
  public_ip           = true

  subnet_id = module.network.subnet_id
  linked_ids = {
    nsg              = module.network.nsg_id
    availability-set = module.network.availability_set_id
    backend-pool     = module.network.backend_pool_id
    gallery          = split("/images/", var.image_id)[0]
  }
}

locals {
  offerings = [
    {
      vm_size             = var.vm_size
      zone                = var.location
      azure_zone          = "none"
      count               = var.machines
      image               = var.image_id
      availability_set_id = module.network.availability_set_id
      nsg_id              = module.network.nsg_id
      lb_backend_pool_ids = [module.network.backend_pool_id]
      public_ip           = true
      os_disk_gib         = 100
    }
  ]
}
