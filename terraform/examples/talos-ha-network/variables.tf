variable "cluster" {
  description = "Name of the cluster, with which the names of all resources begin."
  type        = string
}

variable "location" {
  description = "Region of the machines, such as eastus."
  type        = string
}

variable "image_id" {
  description = "Version of a Talos image in a compute gallery."
  type        = string

  validation {
    condition     = can(regex("(?i)/galleries/[^/]+/images/[^/]+/versions/[^/]+$", var.image_id))
    error_message = "image_id must be the full id of an image version: `az sig image-version show --query id` prints it."
  }
}

variable "vm_size" {
  description = "Size of the machines."
  type        = string
  default     = "Standard_D4s_v5"
}

variable "machines" {
  description = "How many there may be."
  type        = number
  default     = 5
}

variable "service_principal" {
  description = "Who the daemon is; see the example service-principal."
  type = object({
    client_id = string
    object_id = string
  })
}
