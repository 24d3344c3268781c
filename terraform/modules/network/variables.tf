variable "name" {
  description = "Beginning of the names of everything that is made here, such as `bigfleet-eastus`."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9_-]{0,49}$", var.name))
    error_message = "name must have at most 50 letters, digits, hyphens and underscores and begin with a letter or digit: the names of network and addresses begin with it. Try bigfleet-eastus."
  }
}

variable "location" {
  description = "Azure region, such as `eastus`."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]+$", var.location))
    error_message = "location must be a region's short name, such as eastus in place of \"East US\"; `az account list-locations --query \"[].name\"` lists them."
  }
}

variable "resource_group_name" {
  description = "Resource group that everything is put into. It must exist."
  type        = string
  nullable    = false
}

variable "address_space" {
  description = "Addresses of the network."
  type        = string
  default     = "10.0.0.0/16"
  nullable    = false

  validation {
    condition     = try(cidrhost(var.address_space, 0) == split("/", var.address_space)[0], false)
    error_message = "address_space must be an IPv4 range that begins at its first address, such as 10.0.0.0/16."
  }
}

variable "subnet_name" {
  description = "Name of the subnet."
  type        = string
  default     = "nodes"
  nullable    = false
}

variable "subnet_prefix" {
  description = "Addresses of the machines' subnet, inside `address_space`. Azure keeps five of them."
  type        = string
  default     = "10.0.0.0/24"
  nullable    = false

  validation {
    condition     = try(cidrhost(var.subnet_prefix, 0) == split("/", var.subnet_prefix)[0] && tonumber(split("/", var.subnet_prefix)[1]) <= 29, false)
    error_message = "subnet_prefix must be an IPv4 range of /29 or larger that begins at its first address, such as 10.0.0.0/24."
  }

  validation {
    condition = try(
      tonumber(split("/", var.subnet_prefix)[1]) >= tonumber(split("/", var.address_space)[1]) &&
      cidrhost("${split("/", var.subnet_prefix)[0]}/${split("/", var.address_space)[1]}", 0) == cidrhost(var.address_space, 0),
      false
    )
    error_message = "subnet_prefix must lie inside address_space: change one of the two, as in 10.2.0.0/24 in 10.2.0.0/16."
  }
}

variable "nsg_profile" {
  description = "What may come in beside Azure's default rules: `kubeadm`, `talos-cilium` or `wireguard-talos`."
  type        = string
  default     = "kubeadm"
  nullable    = false

  validation {
    condition     = contains(["kubeadm", "talos-cilium", "wireguard-talos"], var.nsg_profile)
    error_message = "nsg_profile must be kubeadm, talos-cilium or wireguard-talos. For rules of your own, take the nearest one and add azurerm_network_security_rule resources to the output nsg_name."
  }
}

variable "nat_gateway" {
  description = "Give the subnet a way out through a NAT gateway. Without one, machines reach nothing outside the network unless they have public IP addresses."
  type        = bool
  default     = true
  nullable    = false
}

variable "availability_set" {
  description = "Make an availability set, Aligned, with 2 fault domains and 5 update domains."
  type        = bool
  default     = false
  nullable    = false
}

variable "load_balancer" {
  description = "Make a Standard load balancer with a public IP address, a probe and a rule on 6443, and a backend pool."
  type        = bool
  default     = false
  nullable    = false

  validation {
    condition     = !var.load_balancer || var.nsg_profile != "wireguard-talos"
    error_message = "load_balancer serves port 6443, which nsg_profile wireguard-talos leaves shut: take kubeadm or talos-cilium, or no load balancer."
  }
}

variable "tags" {
  description = "Tags of everything that is made here."
  type        = map(string)
  default     = {}
  nullable    = false
}
