terraform {
  # 1.9: a validation may look at other variables.
  required_version = ">= 1.9"

  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 5.0, < 6.0"
    }
  }
}

provider "azurerm" {
  features {}
}
