locals {
  arm_id = "(?i)^(/subscriptions/[^/]+/resourceGroups/[^/]+)/providers/([^/]+)((?:/[^/]+/[^/]+)+)$"

  # A copy of docs/reference/azure-actions.json, which scripts/generate_docs.py makes from the code.
  listed = jsondecode(file("${path.module}/actions.json"))

  # What has to be set for an action to be needed, in the words of the list.
  set = concat(
    ["", "--image is a marketplace URN"],
    var.bootstrap_method == "extension" ? ["--bootstrap-method extension"] : [],
    var.public_ip ? ["--public-ip"] : [],
  )
  actions = {
    for reach in ["group", "subscription", "linked"] :
    reach => [for each in local.listed : each.action if each.reach == reach && contains(local.set, each.option)]
  }

  # Microsoft.Network/loadBalancers/backendAddressPools of the id of a backend pool.
  linked_types = {
    for key, id in var.linked_ids :
    key => try(join("/", concat([regex(local.arm_id, id)[1]], [for pair in regexall("/([^/]+)/[^/]+", regex(local.arm_id, id)[2]) : pair[0]])), "none")
  }
  linked_actions = {
    for key, type in local.linked_types :
    key => [for each in local.listed : each.action if each.reach == "linked" && startswith(lower(each.action), lower("${type}/"))]
  }

  # A role for each scope. Azure advises against roles that belong to single resources: the home of a role is a group or
  # the subscription, and its assignment is what is narrow.
  rights = merge(
    {
      group = {
        what     = "resource group ${var.resource_group_name}"
        scope    = local.group_id
        home     = local.group_id
        actions  = local.actions.group
        built_in = "Contributor"
      }
      subscription = {
        what     = "the subscription: sizes, quota, operations, power states"
        scope    = local.subscription_id
        home     = local.subscription_id
        actions  = local.actions.subscription
        built_in = "Reader"
      }
      subnet = {
        what     = "the machines' subnet"
        scope    = local.subnet_scope
        home     = regex("(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+", local.subnet_scope)
        actions  = local.actions.linked
        built_in = "Network Contributor"
      }
    },
    {
      for key, id in var.linked_ids : "linked-${key}" => {
        what     = "the machines' ${key}"
        scope    = id
        home     = try(regex(local.arm_id, id)[0], local.group_id)
        actions  = local.linked_actions[key]
        built_in = "Contributor"
      }
    },
  )
}
