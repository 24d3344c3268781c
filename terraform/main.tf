data "azurerm_client_config" "current" {}

locals {
  tenant_id       = data.azurerm_client_config.current.tenant_id
  subscription_id = "/subscriptions/${data.azurerm_client_config.current.subscription_id}"
  group_id        = "${local.subscription_id}/resourceGroups/${var.resource_group_name}"
  subnet_scope    = var.subnet_id == null ? local.group_id : var.subnet_id

  service_account = coalesce(var.service_account_name, var.name)
  client_id       = var.service_principal == null ? one(azurerm_user_assigned_identity.daemon[*].client_id) : var.service_principal.client_id
  principal_id    = var.service_principal == null ? one(azurerm_user_assigned_identity.daemon[*].principal_id) : var.service_principal.object_id

  # How the daemon proves who it is, as values of the chart.
  logins = {
    federated = {
      azure           = {}
      service_account = { clientId = local.client_id, tenantId = local.tenant_id }
    }
    machine = {
      azure           = { credential = "managed-identity", clientId = local.client_id }
      service_account = {}
    }
    secret = {
      azure = {
        credential   = "service-principal"
        tenantId     = local.tenant_id
        clientId     = local.client_id
        clientSecret = { existingSecret = "${local.service_account}-client-secret" }
      }
      service_account = {}
    }
  }
  login = local.logins[var.service_principal != null ? "secret" : var.oidc_issuer_url != null ? "federated" : "machine"]
}

resource "azurerm_user_assigned_identity" "daemon" {
  count = var.service_principal == null ? 1 : 0

  name                = var.name
  location            = var.location
  resource_group_name = var.resource_group_name
  tags                = var.tags
}

resource "azurerm_federated_identity_credential" "service_account" {
  count = var.service_principal == null && var.oidc_issuer_url != null ? 1 : 0

  name                      = var.name
  user_assigned_identity_id = azurerm_user_assigned_identity.daemon[0].id
  issuer                    = var.oidc_issuer_url
  subject                   = "system:serviceaccount:${var.service_account_namespace}:${local.service_account}"
  audience                  = ["api://AzureADTokenExchange"]
}

resource "azurerm_role_definition" "rights" {
  for_each = { for key, right in local.rights : key => right if var.use_custom_role }

  name              = "${var.name}-${each.key}"
  description       = "What ${var.name} needs on ${each.value.what}."
  scope             = each.value.home
  assignable_scopes = [each.value.home]

  permissions {
    actions = each.value.actions
  }
}

resource "azurerm_role_assignment" "rights" {
  for_each = local.rights

  scope                = each.value.scope
  principal_id         = local.principal_id
  principal_type       = "ServicePrincipal"
  role_definition_id   = var.use_custom_role ? azurerm_role_definition.rights[each.key].role_definition_resource_id : null
  role_definition_name = var.use_custom_role ? null : each.value.built_in

  lifecycle {
    precondition {
      condition     = length(each.value.actions) > 0
      error_message = "linked_ids names ${each.value.scope}, on which the daemon needs no right. It takes subnets, security groups, application security groups, backend pools, identities, availability sets, disk encryption sets, capacity reservation groups, images and galleries; for a version of a gallery's image, name the gallery."
    }
  }
}
