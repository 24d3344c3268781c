variable "location" {
  description = "Region of the machines, such as eastus."
  type        = string
}

variable "resource_group_name" {
  description = "Resource group of the machines. It must exist."
  type        = string
}

variable "subnet_id" {
  description = "Subnet of the machines. It must exist; its resource group may be another one."
  type        = string
}

variable "client_id" {
  description = "The service principal's application id."
  type        = string
}

variable "object_id" {
  description = "The service principal's object id: az ad sp show --id CLIENT_ID --query id"
  type        = string
}
