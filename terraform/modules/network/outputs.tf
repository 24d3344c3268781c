output "virtual_network_id" {
  description = "Id of the network."
  value       = azurerm_virtual_network.this.id
}

output "subnet_id" {
  description = "Id of the subnet: `--subnet-id`. It waits for the rules and the way out."
  value       = azurerm_subnet.nodes.id

  depends_on = [
    azurerm_network_security_rule.allow,
    azurerm_nat_gateway_public_ip_association.this,
    azurerm_subnet_nat_gateway_association.nodes,
    azurerm_subnet_network_security_group_association.nodes,
  ]
}

output "nsg_id" {
  description = "Id of the security group: `--nsg-id`. The subnet has it, too, so machines need not name it."
  value       = azurerm_network_security_group.nodes.id
}

output "nsg_name" {
  description = "Name of the security group, for rules of your own."
  value       = azurerm_network_security_group.nodes.name
}

output "nat_ip" {
  description = "Address that the machines' calls come from; null without NAT gateway."
  value       = one(azurerm_public_ip.nat[*].ip_address)
}

output "nat_gateway_id" {
  description = "Id of the NAT gateway, to give it more addresses; null without one."
  value       = one(azurerm_nat_gateway.this[*].id)
}

output "availability_set_id" {
  description = "Id of the availability set: `--availability-set-id`; null without one."
  value       = one(azurerm_availability_set.this[*].id)
}

output "backend_pool_id" {
  description = "Id of the backend pool: `--lb-backend-pool-ids`; null without load balancer."
  value       = one(azurerm_lb_backend_address_pool.nodes[*].id)
}

output "load_balancer_ip" {
  description = "Public address of the load balancer; null without one."
  value       = one(azurerm_public_ip.api[*].ip_address)
}
