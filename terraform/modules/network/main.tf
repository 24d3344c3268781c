resource "azurerm_virtual_network" "this" {
  name                = "${var.name}-vnet"
  location            = var.location
  resource_group_name = var.resource_group_name
  address_space       = [var.address_space]
  tags                = var.tags
}

resource "azurerm_subnet" "nodes" {
  name                 = var.subnet_name
  resource_group_name  = var.resource_group_name
  virtual_network_name = azurerm_virtual_network.this.name
  address_prefixes     = [var.subnet_prefix]

  # Azure gives new networks none any more; the NAT gateway is the way out.
  default_outbound_access_enabled = false
}

resource "azurerm_network_security_group" "nodes" {
  name                = "${var.name}-nsg"
  location            = var.location
  resource_group_name = var.resource_group_name
  tags                = var.tags
}

# Rules of their own, so that others may add some: a cloud controller opens ports for services of type LoadBalancer.
resource "azurerm_network_security_rule" "allow" {
  for_each = local.profiles[var.nsg_profile]

  name                        = each.key
  description                 = each.value.why
  resource_group_name         = var.resource_group_name
  network_security_group_name = azurerm_network_security_group.nodes.name

  direction                  = "Inbound"
  access                     = "Allow"
  priority                   = each.value.priority
  protocol                   = each.value.protocol
  source_address_prefix      = each.value.source
  source_port_range          = "*"
  destination_address_prefix = "*"
  destination_port_range     = each.value.ports
}

resource "azurerm_subnet_network_security_group_association" "nodes" {
  subnet_id                 = azurerm_subnet.nodes.id
  network_security_group_id = azurerm_network_security_group.nodes.id
}

resource "azurerm_availability_set" "this" {
  count = var.availability_set ? 1 : 0

  name                = "${var.name}-avset"
  location            = var.location
  resource_group_name = var.resource_group_name
  tags                = var.tags

  # Managed is what the portal calls Aligned.
  managed                      = true
  platform_fault_domain_count  = 2
  platform_update_domain_count = 5
}
