# The six variables of the installation guide, and the other two ways to log in.

mock_provider "azurerm" {
  mock_data "azurerm_client_config" {
    defaults = {
      subscription_id = "00000000-0000-0000-0000-000000000000"
      tenant_id       = "22222222-2222-2222-2222-222222222222"
    }
  }

  mock_resource "azurerm_user_assigned_identity" {
    defaults = {
      id           = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/bigfleet-eastus/providers/Microsoft.ManagedIdentity/userAssignedIdentities/bigfleet-azure-eastus"
      client_id    = "11111111-1111-1111-1111-111111111111"
      principal_id = "33333333-3333-3333-3333-333333333333"
    }
  }
}

variables {
  name                      = "bigfleet-azure-eastus"
  location                  = "eastus"
  resource_group_name       = "bigfleet-eastus"
  oidc_issuer_url           = "https://eastus.oic.prod-aks.azure.com/22222222/33333333/"
  service_account_namespace = "bigfleet"
  service_account_name      = "bigfleet-azure-eastus"
}

run "six_variables_are_enough" {
  assert {
    condition     = azurerm_federated_identity_credential.service_account[0].subject == "system:serviceaccount:bigfleet:bigfleet-azure-eastus"
    error_message = "The credential must be for the chart's ServiceAccount."
  }

  assert {
    condition     = azurerm_federated_identity_credential.service_account[0].issuer == var.oidc_issuer_url
    error_message = "The credential must be for the cluster's issuer."
  }

  assert {
    condition     = azurerm_federated_identity_credential.service_account[0].audience == tolist(["api://AzureADTokenExchange"])
    error_message = "The audience must be the one that AKS puts into tokens."
  }

  assert {
    condition     = azurerm_federated_identity_credential.service_account[0].user_assigned_identity_id == azurerm_user_assigned_identity.daemon[0].id
    error_message = "The credential must belong to the identity."
  }

  assert {
    condition     = azurerm_user_assigned_identity.daemon[0].resource_group_name == "bigfleet-eastus" && azurerm_user_assigned_identity.daemon[0].location == "eastus"
    error_message = "The identity must lie in the resource group."
  }

  assert {
    condition     = alltrue([for each in azurerm_role_assignment.rights : each.principal_id == "33333333-3333-3333-3333-333333333333"])
    error_message = "All roles must go to the identity."
  }

  assert {
    condition     = [output.client_id, output.principal_id, output.tenant_id] == ["11111111-1111-1111-1111-111111111111", "33333333-3333-3333-3333-333333333333", "22222222-2222-2222-2222-222222222222"]
    error_message = "The outputs must name client, principal and tenant."
  }

  assert {
    condition = jsonencode(yamldecode(output.helm_values)) == jsonencode({
      location = "eastus"
      provider = "azure-eastus"
      azure = {
        subscriptionId = "00000000-0000-0000-0000-000000000000"
        resourceGroup  = "bigfleet-eastus"
      }
      serviceAccount = {
        name     = "bigfleet-azure-eastus"
        clientId = "11111111-1111-1111-1111-111111111111"
        tenantId = "22222222-2222-2222-2222-222222222222"
      }
      state = { enabled = true, persistence = { enabled = true, size = "1Gi" } }
    })
    error_message = "The Helm values must be those of the installation guide."
  }
}

run "the_service_account_is_named_as_the_daemon" {
  variables {
    service_account_name = null
  }

  assert {
    condition     = endswith(azurerm_federated_identity_credential.service_account[0].subject, ":bigfleet-azure-eastus")
    error_message = "Without service_account_name, name must be taken."
  }
}

run "without_an_issuer_the_identity_is_for_a_machine" {
  variables {
    oidc_issuer_url = null
  }

  assert {
    condition     = length(azurerm_federated_identity_credential.service_account) == 0 && output.identity_id == azurerm_user_assigned_identity.daemon[0].id
    error_message = "There must be an identity, without a federated credential."
  }

  assert {
    condition     = yamldecode(output.helm_values).azure.credential == "managed-identity" && yamldecode(output.helm_values).azure.clientId == output.client_id
    error_message = "The daemon must take the machine's identity."
  }
}

run "a_service_principal_gets_the_roles_and_no_identity_is_made" {
  variables {
    oidc_issuer_url = null
    service_principal = {
      client_id = "44444444-4444-4444-4444-444444444444"
      object_id = "55555555-5555-5555-5555-555555555555"
    }
  }

  assert {
    condition     = length(azurerm_user_assigned_identity.daemon) == 0 && length(azurerm_federated_identity_credential.service_account) == 0
    error_message = "Nothing must be made beside the roles."
  }

  assert {
    condition     = alltrue([for each in azurerm_role_assignment.rights : each.principal_id == "55555555-5555-5555-5555-555555555555"])
    error_message = "All roles must go to the service principal's object id."
  }

  assert {
    condition = jsonencode(yamldecode(output.helm_values).azure) == jsonencode({
      credential     = "service-principal"
      subscriptionId = "00000000-0000-0000-0000-000000000000"
      resourceGroup  = "bigfleet-eastus"
      tenantId       = "22222222-2222-2222-2222-222222222222"
      clientId       = "44444444-4444-4444-4444-444444444444"
      clientSecret   = { existingSecret = "bigfleet-azure-eastus-client-secret" }
    })
    error_message = "The Helm values must name the service principal and the Secret of its password."
  }
}
