locals {
  frontend = "api"
}

resource "azurerm_public_ip" "api" {
  count = var.load_balancer ? 1 : 0

  name                = "${var.name}-lb-ip"
  location            = var.location
  resource_group_name = var.resource_group_name
  allocation_method   = "Static"
  sku                 = "Standard"
  tags                = var.tags
}

resource "azurerm_lb" "api" {
  count = var.load_balancer ? 1 : 0

  name                = "${var.name}-lb"
  location            = var.location
  resource_group_name = var.resource_group_name
  sku                 = "Standard"
  tags                = var.tags

  frontend_ip_configuration {
    name                 = local.frontend
    public_ip_address_id = azurerm_public_ip.api[0].id
  }
}

resource "azurerm_lb_backend_address_pool" "nodes" {
  count = var.load_balancer ? 1 : 0

  name            = "nodes"
  loadbalancer_id = azurerm_lb.api[0].id
}

resource "azurerm_lb_probe" "api" {
  count = var.load_balancer ? 1 : 0

  name            = "api"
  loadbalancer_id = azurerm_lb.api[0].id
  protocol        = "Tcp"
  port            = 6443
}

resource "azurerm_lb_rule" "api" {
  count = var.load_balancer ? 1 : 0

  name                           = "api"
  loadbalancer_id                = azurerm_lb.api[0].id
  frontend_ip_configuration_name = local.frontend
  backend_address_pool_ids       = [azurerm_lb_backend_address_pool.nodes[0].id]
  probe_id                       = azurerm_lb_probe.api[0].id
  protocol                       = "Tcp"
  frontend_port                  = 6443
  backend_port                   = 6443
  # A watch that falls silent is told that its connection is gone.
  tcp_reset_enabled = true
  # The way out is the NAT gateway where there is one.
  disable_outbound_snat = var.nat_gateway
}
