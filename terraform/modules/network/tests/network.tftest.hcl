mock_provider "azurerm" {
  mock_resource "azurerm_subnet" {
    defaults = { id = "/subscriptions/s/resourceGroups/bigfleet/providers/Microsoft.Network/virtualNetworks/bigfleet-vnet/subnets/nodes" }
  }
  mock_resource "azurerm_network_security_group" {
    defaults = { id = "/subscriptions/s/resourceGroups/bigfleet/providers/Microsoft.Network/networkSecurityGroups/bigfleet-nsg" }
  }
  mock_resource "azurerm_nat_gateway" {
    defaults = { id = "/subscriptions/s/resourceGroups/bigfleet/providers/Microsoft.Network/natGateways/bigfleet-nat" }
  }
  mock_resource "azurerm_availability_set" {
    defaults = { id = "/subscriptions/s/resourceGroups/bigfleet/providers/Microsoft.Compute/availabilitySets/bigfleet-avset" }
  }
  mock_resource "azurerm_lb" {
    defaults = { id = "/subscriptions/s/resourceGroups/bigfleet/providers/Microsoft.Network/loadBalancers/bigfleet-lb" }
  }
  mock_resource "azurerm_lb_backend_address_pool" {
    defaults = { id = "/subscriptions/s/resourceGroups/bigfleet/providers/Microsoft.Network/loadBalancers/bigfleet-lb/backendAddressPools/nodes" }
  }
  mock_resource "azurerm_lb_probe" {
    defaults = { id = "/subscriptions/s/resourceGroups/bigfleet/providers/Microsoft.Network/loadBalancers/bigfleet-lb/probes/api" }
  }
  mock_resource "azurerm_public_ip" {
    defaults = {
      id         = "/subscriptions/s/resourceGroups/bigfleet/providers/Microsoft.Network/publicIPAddresses/ip"
      ip_address = "203.0.113.7"
    }
  }
}

variables {
  name                = "bigfleet"
  location            = "eastus"
  resource_group_name = "bigfleet"
}

run "a_network_has_a_way_out" {
  assert {
    condition     = azurerm_virtual_network.this.address_space == toset(["10.0.0.0/16"]) && azurerm_subnet.nodes.address_prefixes == tolist(["10.0.0.0/24"])
    error_message = "The network must have the addresses of the defaults."
  }

  assert {
    condition     = azurerm_subnet.nodes.default_outbound_access_enabled == false
    error_message = "Nobody may rely on Azure's vanishing default way out."
  }

  assert {
    condition     = azurerm_subnet_nat_gateway_association.nodes[0].subnet_id == output.subnet_id && azurerm_subnet_nat_gateway_association.nodes[0].nat_gateway_id == output.nat_gateway_id
    error_message = "The subnet must have the NAT gateway."
  }

  assert {
    condition     = azurerm_nat_gateway_public_ip_association.this[0].public_ip_address_id == azurerm_public_ip.nat[0].id && output.nat_ip == "203.0.113.7"
    error_message = "The NAT gateway must have an address."
  }

  assert {
    condition     = azurerm_public_ip.nat[0].sku == "Standard" && azurerm_public_ip.nat[0].allocation_method == "Static"
    error_message = "A NAT gateway takes Standard addresses only."
  }

  assert {
    condition     = azurerm_subnet_network_security_group_association.nodes.subnet_id == output.subnet_id && azurerm_subnet_network_security_group_association.nodes.network_security_group_id == output.nsg_id
    error_message = "The subnet must have the security group."
  }

  assert {
    condition     = output.availability_set_id == null && output.backend_pool_id == null && output.load_balancer_ip == null
    error_message = "Availability set and load balancer are made on demand only."
  }
}

run "kubeadm_rules" {
  command = plan

  assert {
    condition = { for name, rule in azurerm_network_security_rule.allow : rule.priority => "${rule.protocol} ${rule.destination_port_range} from ${rule.source_address_prefix}" } == {
      100 = "Tcp 6443 from *"
      200 = "Tcp 10250 from 10.0.0.0/24"
      300 = "Udp 4789 from 10.0.0.0/24"
      400 = "Udp 8472 from 10.0.0.0/24"
    }
    error_message = "kubeadm must open the API, the kubelets and both VXLAN ports."
  }
}

run "talos_cilium_rules" {
  command = plan

  variables {
    nsg_profile = "talos-cilium"
  }

  assert {
    condition = { for name, rule in azurerm_network_security_rule.allow : "${rule.priority} ${name}" => "${rule.protocol} ${rule.destination_port_range} from ${rule.source_address_prefix}" } == {
      "100 allow-apiserver"     = "Tcp 6443 from *"
      "200 allow-talos"         = "Tcp 50000-50001 from 10.0.0.0/24"
      "300 allow-etcd"          = "Tcp 2379-2380 from 10.0.0.0/24"
      "400 allow-kubelet"       = "Tcp 10250 from 10.0.0.0/24"
      "500 allow-cilium-health" = "Tcp 4240 from 10.0.0.0/24"
      "600 allow-cilium-vxlan"  = "Udp 8472 from 10.0.0.0/24"
    }
    error_message = "talos-cilium must be the six rules of Butler's guide."
  }
}

run "wireguard_talos_rules" {
  command = plan

  variables {
    nsg_profile   = "wireguard-talos"
    address_space = "10.2.0.0/16"
    subnet_prefix = "10.2.0.0/24"
    subnet_name   = "workers"
    nat_gateway   = false
  }

  assert {
    condition = { for name, rule in azurerm_network_security_rule.allow : "${rule.priority} ${name}" => "${rule.protocol} ${rule.destination_port_range} from ${rule.source_address_prefix}" } == {
      "100 AllowWireGuard" = "Udp 51820 from *"
      "110 AllowTalosAPI"  = "Tcp 50000 from *"
    }
    error_message = "wireguard-talos must be the two rules of Cozystack's guide."
  }

  assert {
    condition     = length(azurerm_nat_gateway.this) + length(azurerm_public_ip.nat) + length(azurerm_subnet_nat_gateway_association.nodes) == 0
    error_message = "Nothing of the NAT gateway may be made."
  }
}

run "rules_are_inbound_and_allow_any_destination" {
  command = plan

  variables {
    nsg_profile   = "talos-cilium"
    address_space = "10.2.0.0/16"
    subnet_prefix = "10.2.4.0/22"
  }

  assert {
    condition     = alltrue([for rule in azurerm_network_security_rule.allow : rule.direction == "Inbound" && rule.access == "Allow" && rule.source_port_range == "*" && rule.destination_address_prefix == "*"])
    error_message = "Rules must let in."
  }

  assert {
    condition     = toset([for rule in azurerm_network_security_rule.allow : rule.source_address_prefix]) == toset(["*", "10.2.4.0/22"])
    error_message = "Rules between machines must follow the subnet."
  }
}

run "availability_set_and_load_balancer" {
  variables {
    nsg_profile      = "talos-cilium"
    availability_set = true
    load_balancer    = true
  }

  assert {
    condition     = azurerm_availability_set.this[0].managed && azurerm_availability_set.this[0].platform_fault_domain_count == 2 && azurerm_availability_set.this[0].platform_update_domain_count == 5
    error_message = "The availability set must be Aligned, with 2 fault and 5 update domains."
  }

  assert {
    condition     = endswith(output.availability_set_id, "/availabilitySets/bigfleet-avset") && endswith(output.backend_pool_id, "/backendAddressPools/nodes") && output.load_balancer_ip == "203.0.113.7"
    error_message = "The outputs must name availability set, backend pool and address."
  }

  assert {
    condition     = azurerm_lb.api[0].sku == "Standard" && azurerm_public_ip.api[0].sku == "Standard" && azurerm_lb.api[0].frontend_ip_configuration[0].public_ip_address_id == azurerm_public_ip.api[0].id
    error_message = "The load balancer must be Standard, with a Standard address."
  }

  assert {
    condition     = azurerm_lb_probe.api[0].port == 6443 && azurerm_lb_probe.api[0].protocol == "Tcp"
    error_message = "The probe must be TCP on 6443."
  }

  assert {
    condition     = azurerm_lb_rule.api[0].frontend_port == 6443 && azurerm_lb_rule.api[0].backend_port == 6443 && azurerm_lb_rule.api[0].protocol == "Tcp" && azurerm_lb_rule.api[0].probe_id == azurerm_lb_probe.api[0].id && azurerm_lb_rule.api[0].backend_address_pool_ids == tolist([output.backend_pool_id])
    error_message = "The rule must send 6443 to the pool's machines that the probe finds well."
  }

  assert {
    condition     = azurerm_lb_rule.api[0].frontend_ip_configuration_name == azurerm_lb.api[0].frontend_ip_configuration[0].name && azurerm_lb_rule.api[0].disable_outbound_snat
    error_message = "The rule must listen on the frontend, and leave the way out to the NAT gateway."
  }
}

run "values_that_azure_would_refuse" {
  command = plan

  variables {
    name          = "-"
    location      = "East US"
    address_space = "10.0.0.1/16"
    nsg_profile   = "open"
  }

  expect_failures = [var.name, var.location, var.address_space, var.nsg_profile]
}

run "a_subnet_without_room" {
  command = plan

  variables {
    subnet_prefix = "10.0.0.0/30"
  }

  expect_failures = [var.subnet_prefix]
}

run "a_subnet_outside_the_network" {
  command = plan

  variables {
    subnet_prefix = "10.1.0.0/24"
  }

  expect_failures = [var.subnet_prefix]
}

run "a_load_balancer_behind_a_shut_port" {
  command = plan

  variables {
    nsg_profile   = "wireguard-talos"
    load_balancer = true
  }

  expect_failures = [var.load_balancer]
}
