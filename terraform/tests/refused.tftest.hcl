# Values that are refused before Azure sees them.

mock_provider "azurerm" {}

variables {
  name                = "bigfleet-azure-eastus"
  location            = "eastus"
  resource_group_name = "bigfleet-eastus"
  oidc_issuer_url     = null
}

run "values_that_azure_would_refuse" {
  command = plan

  variables {
    name                      = "-"
    location                  = "East US"
    resource_group_name       = "/subscriptions/s/resourceGroups/bigfleet-eastus"
    oidc_issuer_url           = ""
    service_account_namespace = "Big_Fleet"
    subnet_id                 = "nodes"
    bootstrap_method          = "cloud-init"
    linked_ids                = { NSG = "nsg" }
  }

  expect_failures = [
    var.name,
    var.location,
    var.resource_group_name,
    var.oidc_issuer_url,
    var.service_account_namespace,
    var.subnet_id,
    var.bootstrap_method,
    var.linked_ids,
  ]
}

run "names_that_azure_takes_and_kubernetes_does_not" {
  command = plan

  variables {
    name = "Big_Fleet"
  }

  expect_failures = [var.service_account_name]
}

run "a_service_principal_that_is_named_by_its_name" {
  command = plan

  variables {
    service_principal = { client_id = "bigfleet", object_id = "55555555-5555-5555-5555-555555555555" }
  }

  expect_failures = [var.service_principal]
}

run "a_service_principal_with_its_client_id_twice" {
  command = plan

  variables {
    service_principal = { client_id = "44444444-4444-4444-4444-444444444444", object_id = "44444444-4444-4444-4444-444444444444" }
  }

  expect_failures = [var.service_principal]
}

run "a_service_principal_with_a_federated_credential" {
  command = plan

  variables {
    oidc_issuer_url   = "https://eastus.oic.prod-aks.azure.com/22222222/33333333/"
    service_principal = { client_id = "44444444-4444-4444-4444-444444444444", object_id = "55555555-5555-5555-5555-555555555555" }
  }

  expect_failures = [var.service_principal]
}

run "a_linked_resource_that_needs_no_right" {
  command = plan

  variables {
    linked_ids = { vault = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v" }
  }

  expect_failures = [azurerm_role_assignment.rights]
}
