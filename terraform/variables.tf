variable "name" {
  description = "Name of this daemon, such as `bigfleet-azure-eastus`: of its identity, and the beginning of its roles' names. It must differ between daemons of one tenant."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9_-]{2,99}$", var.name))
    error_message = "name must have 3 to 100 letters, digits, hyphens and underscores, and begin with a letter or digit: Azure takes no other name for an identity. Try bigfleet-azure-eastus."
  }
}

variable "location" {
  description = "Azure region that the daemon serves, such as `eastus`."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]+$", var.location))
    error_message = "location must be a region's short name, such as eastus in place of \"East US\"; `az account list-locations --query \"[].name\"` lists them."
  }
}

variable "resource_group_name" {
  description = "Resource group that the machines are made in; the identity is put there, too. It must exist."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[\\p{L}\\p{N}_.()-]{0,89}[\\p{L}\\p{N}_()-]$", var.resource_group_name))
    error_message = "resource_group_name must be the name of a resource group, not its id: 1 to 90 letters, digits and _ . ( ) -, without a dot at the end. `az group list --query \"[].name\"` lists them."
  }
}

variable "oidc_issuer_url" {
  description = "Issuer of the cluster that the daemon runs in: `az aks show --query oidcIssuerProfile.issuerUrl`. `null`, which takes a .tfvars file or a module call, makes no federated credential: for a daemon on an Azure VM that carries the identity, and with `service_principal`."
  type        = string

  validation {
    condition     = var.oidc_issuer_url == null || can(regex("^https://[^/]+", var.oidc_issuer_url))
    error_message = "oidc_issuer_url must begin with https://. If `az aks show` printed nothing, turn the issuer on: `az aks update --enable-oidc-issuer --enable-workload-identity`. Outside Kubernetes, give null in a .tfvars file."
  }
}

variable "service_account_namespace" {
  description = "Namespace that the chart is installed in."
  type        = string
  default     = "bigfleet"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", var.service_account_namespace))
    error_message = "service_account_namespace must be a Kubernetes namespace: at most 63 lower-case letters, digits and hyphens. Give what `helm install --namespace` gets, such as bigfleet."
  }
}

variable "service_account_name" {
  description = "ServiceAccount that the chart makes (`serviceAccount.name`). `null` takes `name`."
  type        = string
  default     = null

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", coalesce(var.service_account_name, var.name)))
    error_message = "service_account_name must have at most 253 lower-case letters, digits, hyphens and dots. It is taken from name, which may have other letters: give the chart's serviceAccount.name here."
  }
}

variable "use_custom_role" {
  description = "Give exactly the listed actions by custom roles. `false` gives the built-in roles Contributor on the resource group, Reader on the subscription and Network Contributor for the subnet: for those who may not make roles."
  type        = bool
  default     = true
  nullable    = false
}

variable "subnet_id" {
  description = "Id of the machines' subnet, in any resource group; the right to join is given there alone. `null` gives it for all subnets of the resource group."
  type        = string
  default     = null

  validation {
    condition     = var.subnet_id == null || can(regex("(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\\.Network/virtualNetworks/[^/]+/subnets/[^/]+$", var.subnet_id))
    error_message = "subnet_id must be the full id of a subnet: `az network vnet subnet show --resource-group GROUP --vnet-name VNET --name SUBNET --query id` prints it."
  }
}

variable "linked_ids" {
  description = "Ids of what else the machines refer to, in any resource group, by names of your choice: security groups, backend pools, identities, availability sets, images, galleries and so on. The actions of its kind are given on each."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for key in keys(var.linked_ids) : can(regex("^[a-z0-9][a-z0-9_-]{0,29}$", key))])
    error_message = "The keys of linked_ids become part of roles' names: give each at most 30 lower-case letters, digits, hyphens and underscores, such as nsg."
  }

  validation {
    condition     = alltrue([for id in values(var.linked_ids) : can(regex(local.arm_id, id))])
    error_message = "The values of linked_ids must be full ids, /subscriptions/…/resourceGroups/…/providers/…: `az resource show --query id` prints one."
  }

  validation {
    condition     = length(distinct([for id in values(var.linked_ids) : lower(id)])) == length(var.linked_ids)
    error_message = "linked_ids names a resource twice: remove one of the two."
  }
}

variable "public_ip" {
  description = "The machines get public IP addresses (`--public-ip`)."
  type        = bool
  default     = false
  nullable    = false
}

variable "bootstrap_method" {
  description = "As `--bootstrap-method`: `none` for images that join from their user data, such as Talos; no right on extensions is given then."
  type        = string
  default     = "extension"
  nullable    = false

  validation {
    condition     = contains(["extension", "none"], var.bootstrap_method)
    error_message = "bootstrap_method must be extension (a hook in the image joins the machine) or none (the image joins from its user data, as Talos does)."
  }
}

variable "service_principal" {
  description = "Give the rights to this service principal, and make no identity: `client_id` is its application id, `object_id` that of the service principal."
  type = object({
    client_id = string
    object_id = string
  })
  default = null

  validation {
    condition     = var.service_principal == null || try(alltrue([for id in values(var.service_principal) : can(regex("^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$", id))]), false)
    error_message = "service_principal needs two GUIDs: client_id is the application's (client) id, and `az ad sp show --id CLIENT_ID --query id` prints object_id."
  }

  validation {
    condition     = try(lower(var.service_principal.client_id) != lower(var.service_principal.object_id), true)
    error_message = "service_principal.object_id is the client id again, to which Azure gives no role: `az ad sp show --id CLIENT_ID --query id` prints the object id."
  }

  validation {
    condition     = var.service_principal == null || var.oidc_issuer_url == null
    error_message = "A service principal logs in with its secret: give oidc_issuer_url = null with service_principal, or leave service_principal out and have an identity made."
  }
}

variable "tags" {
  description = "Tags of the identity."
  type        = map(string)
  default     = {}
  nullable    = false
}
