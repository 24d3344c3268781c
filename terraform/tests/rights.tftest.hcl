# What is allowed, and where.

mock_provider "azurerm" {
  mock_data "azurerm_client_config" {
    defaults = {
      subscription_id = "00000000-0000-0000-0000-000000000000"
      tenant_id       = "22222222-2222-2222-2222-222222222222"
    }
  }
}

variables {
  name                = "bigfleet-azure-eastus"
  location            = "eastus"
  resource_group_name = "bigfleet-eastus"
  oidc_issuer_url     = "https://eastus.oic.prod-aks.azure.com/22222222/33333333/"

  subscription = "/subscriptions/00000000-0000-0000-0000-000000000000"
  group        = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/bigfleet-eastus"
  network      = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/net/providers/Microsoft.Network"
  compute      = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/images/providers/Microsoft.Compute"
}

run "there_is_a_role_for_each_scope" {
  assert {
    condition = { for key, each in azurerm_role_assignment.rights : key => each.scope } == {
      group        = var.group
      subscription = var.subscription
      subnet       = var.group
    }
    error_message = "Without subnet_id, subnets of the resource group must do."
  }

  assert {
    condition     = alltrue([for key, each in azurerm_role_definition.rights : each.scope == azurerm_role_assignment.rights[key].scope])
    error_message = "A role must be usable where it is assigned."
  }

  assert {
    condition     = alltrue([for key, each in azurerm_role_assignment.rights : each.principal_type == "ServicePrincipal" && each.role_definition_id == azurerm_role_definition.rights[key].role_definition_resource_id])
    error_message = "Each role must be assigned where it belongs; Azure has to be told the kind of a new principal."
  }

  assert {
    condition = toset(azurerm_role_definition.rights["group"].permissions[0].actions) == toset([
      for each in jsondecode(file("actions.json")) : each.action if each.reach == "group" && contains(["", "--bootstrap-method extension"], each.option)
    ])
    error_message = "The role of the group must have what is always needed there, and the hook's extension."
  }

  assert {
    condition = toset(azurerm_role_definition.rights["subscription"].permissions[0].actions) == toset([
      for each in jsondecode(file("actions.json")) : each.action if each.reach == "subscription"
    ])
    error_message = "The role of the subscription must have all that is needed there."
  }

  assert {
    condition     = alltrue([for action in azurerm_role_definition.rights["subscription"].permissions[0].actions : endswith(action, "/read")])
    error_message = "On the subscription nothing but reading may be allowed."
  }

  assert {
    condition     = toset(azurerm_role_definition.rights["subnet"].permissions[0].actions) == toset(["Microsoft.Network/virtualNetworks/subnets/join/action", "Microsoft.Network/virtualNetworks/subnets/read"])
    error_message = "The role of the subnet must let machines join, and no more."
  }

  assert {
    condition     = !anytrue(flatten([for each in azurerm_role_definition.rights : [for action in each.permissions[0].actions : strcontains(action, "*")]]))
    error_message = "No action may be a pattern."
  }
}

run "a_subnet_of_another_group_gets_the_right_alone" {
  command = plan

  variables {
    subnet_id = "${var.network}/virtualNetworks/vnet/subnets/nodes"
  }

  assert {
    condition     = azurerm_role_assignment.rights["subnet"].scope == var.subnet_id
    error_message = "The right to join must be given on the subnet."
  }

  assert {
    condition     = azurerm_role_definition.rights["subnet"].assignable_scopes == tolist(["${var.subscription}/resourceGroups/net"])
    error_message = "The role must be assignable in the subnet's group."
  }

  assert {
    condition     = !strcontains(jsonencode(azurerm_role_definition.rights["group"].permissions), "subnets")
    error_message = "In the machines' group there must be no right on subnets."
  }
}

run "public_addresses_come_with_their_actions" {
  command = plan

  variables {
    public_ip = true
  }

  assert {
    condition     = length(setsubtract(["Microsoft.Network/publicIPAddresses/join/action", "Microsoft.Network/publicIPAddresses/write"], azurerm_role_definition.rights["group"].permissions[0].actions)) == 0
    error_message = "With public_ip the group's role must let addresses be made."
  }
}

run "images_that_join_by_themselves_need_no_extension" {
  command = plan

  variables {
    bootstrap_method = "none"
  }

  assert {
    condition     = !strcontains(jsonencode(azurerm_role_definition.rights["group"].permissions), "extensions")
    error_message = "Without the hook there must be no right on extensions."
  }
}

run "each_linked_resource_gets_the_actions_of_its_kind" {
  command = plan

  variables {
    linked_ids = {
      nsg      = "${var.network}/networkSecurityGroups/nsg"
      asg      = "${var.network}/applicationSecurityGroups/asg"
      pool     = "${var.network}/loadBalancers/lb/backendAddressPools/nodes"
      subnet   = "${var.network}/virtualNetworks/vnet/subnets/gpu"
      avset    = "${var.compute}/availabilitySets/avset"
      reserved = "${var.compute}/capacityReservationGroups/kept"
      keys     = "${var.compute}/diskEncryptionSets/keys"
      image    = "${var.compute}/images/talos"
      gallery  = lower("${var.compute}/galleries/gallery")
      identity = "${var.group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/nodes"
    }
  }

  assert {
    condition = { for key, each in azurerm_role_definition.rights : trimprefix(key, "linked-") => join(" ", each.permissions[0].actions) if startswith(key, "linked-") } == {
      nsg      = "Microsoft.Network/networkSecurityGroups/join/action"
      asg      = "Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action"
      pool     = "Microsoft.Network/loadBalancers/backendAddressPools/join/action"
      subnet   = "Microsoft.Network/virtualNetworks/subnets/join/action Microsoft.Network/virtualNetworks/subnets/read"
      avset    = "Microsoft.Compute/availabilitySets/read"
      reserved = "Microsoft.Compute/capacityReservationGroups/deploy/action"
      keys     = "Microsoft.Compute/diskEncryptionSets/read"
      image    = "Microsoft.Compute/images/read"
      gallery  = "Microsoft.Compute/galleries/images/read Microsoft.Compute/galleries/images/versions/read"
      identity = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
    }
    error_message = "Each resource must get the actions of its kind."
  }

  assert {
    condition     = tomap({ for key, each in azurerm_role_assignment.rights : trimprefix(key, "linked-") => each.scope if startswith(key, "linked-") }) == var.linked_ids
    error_message = "Each right must be given on the resource itself."
  }

  assert {
    condition     = azurerm_role_definition.rights["linked-nsg"].scope == "${var.subscription}/resourceGroups/net"
    error_message = "The role must belong to the resource's group."
  }
}

run "without_custom_roles_built_in_ones_are_assigned" {
  command = plan

  variables {
    use_custom_role = false
    linked_ids      = { nsg = "${var.network}/networkSecurityGroups/nsg" }
  }

  assert {
    condition     = length(azurerm_role_definition.rights) == 0
    error_message = "No role may be made."
  }

  assert {
    condition = { for key, each in azurerm_role_assignment.rights : key => each.role_definition_name } == {
      group        = "Contributor"
      subscription = "Reader"
      subnet       = "Network Contributor"
      linked-nsg   = "Contributor"
    }
    error_message = "Contributor must be given on the group, and reading alone on the subscription."
  }
}
