"""What the modules refuse and how they say it, and that their tests and the stand-in can fail."""

from typing import Any

import pytest

from tests.terraform.provider import ISSUER, SUBSCRIPTION
from tests.terraform.test_modules import NETWORK, PAGE, PRINCIPAL

pytestmark = [pytest.mark.deploy, pytest.mark.process]

VAULT = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/kept/providers/Microsoft.KeyVault/vaults/v"
PLACE = {"name": "bigfleet", "location": "eastus", "resource_group_name": "fleet"}

REFUSED: dict[str, list[tuple[dict[str, Any], tuple[str, ...]]]] = {
    "": [
        (
            {
                "name": "-",
                "location": "East US",
                "resource_group_name": "/subscriptions/s/resourceGroups/fleet",
                "oidc_issuer_url": "",
                "service_account_namespace": "Big_Fleet",
                "subnet_id": "nodes",
                "bootstrap_method": "cloud-init",
                "linked_ids": {"NSG": "nsg"},
            },
            (
                "Try bigfleet-azure-eastus.",
                "`az account list-locations",
                "`az group list",
                "`az aks update --enable-oidc-issuer --enable-workload-identity`",
                "such as bigfleet.",
                "`az network vnet subnet show",
                "extension (a hook in the image joins the machine) or none",
                "such as nsg.",
                "`az resource show --query id`",
            ),
        ),
        (
            {**PLACE, "name": "Big_Fleet", "oidc_issuer_url": ISSUER},
            ("give the chart's serviceAccount.name here",),
        ),
        (
            {**PLACE, "oidc_issuer_url": ISSUER, "service_principal": PRINCIPAL},
            ("give oidc_issuer_url = null with service_principal",),
        ),
        (
            {
                **PLACE,
                "oidc_issuer_url": None,
                "service_principal": {**PRINCIPAL, "client_id": "x"},
            },
            ("`az ad sp show --id CLIENT_ID --query id` prints object_id",),
        ),
        (
            {
                **PLACE,
                "oidc_issuer_url": None,
                "service_principal": {**PRINCIPAL, "client_id": PRINCIPAL["object_id"]},
            },
            ("is the client id again",),
        ),
        (
            {
                **PAGE,
                "linked_ids": {
                    "one": f"{NETWORK}/virtualNetworks/v/subnets/s",
                    "two": f"{NETWORK}/virtualNetworks/V/subnets/s",
                },
            },
            ("remove one of the two",),
        ),
        (
            {
                **PAGE,
                "linked_ids": {"vault": VAULT},
            },
            ("Microsoft.KeyVault/vaults/v, on which the daemon needs no right. It takes subnets,",),
        ),
    ],
    "modules/network": [
        (
            {
                "name": "-",
                "location": "East US",
                "resource_group_name": "fleet",
                "address_space": "10.0.0.1/16",
                "nsg_profile": "open",
            },
            (
                "Try bigfleet-eastus.",
                "`az account list-locations",
                "such as 10.0.0.0/16.",
                "add azurerm_network_security_rule resources",
            ),
        ),
        ({**PLACE, "subnet_prefix": "10.0.0.0/30"}, ("range of /29 or larger",)),
        ({**PLACE, "subnet_prefix": "10.1.0.0/24"}, ("must lie inside address_space",)),
        (
            {**PLACE, "nsg_profile": "wireguard-talos", "load_balancer": True},
            ("take kubeadm or talos-cilium, or no load balancer",),
        ),
    ],
}


@pytest.mark.parametrize("folder", REFUSED)
def test_each_refusal_names_the_way_out(terraform, folder):
    for variables, remedies in REFUSED[folder]:
        said = terraform.refusals(folder, **variables)
        assert len(said) == len(remedies), said
        for remedy in remedies:
            assert any(remedy in text for text in said), (remedy, said)


def test_a_variable_of_the_page_that_is_missing_is_asked_for(terraform):
    for name in ("name", "location", "resource_group_name", "oidc_issuer_url"):
        rest = {key: value for key, value in PAGE.items() if key != name}
        [said] = terraform.refusals("", **rest)
        assert f'"{name}"' in said


CHANGES = [
    ("main.tf", "  audience  ", "  audiences ", "audiences"),
    ("main.tf", "  principal_type ", "  principal_kind ", "principal_kind"),
    ("main.tf", "  location            = var.location\n", "", '"location" is required'),
    ("main.tf", "  permissions {", "  permission {", '"permission" are not expected here'),
    (
        "modules/network/load_balancer.tf",
        "  frontend_ip_configuration {",
        "  frontend_ip_config {",
        '"frontend_ip_config" are not expected here',
    ),
    (
        "modules/network/main.tf",
        "[var.address_space]",
        "{ range = [var.address_space] }",
        "set of string required",
    ),
    (
        "modules/network/outputs.tf",
        "azurerm_subnet.nodes.id\n",
        "azurerm_subnet.nodes.identifier\n",
        "no argument, nested block, or exported attribute named",
    ),
]


@pytest.mark.parametrize(
    ("file", "old", "new", "said"), CHANGES, ids=lambda each: each[:20].strip()
)
def test_what_the_provider_does_not_know_is_found(terraform, file, old, new, said):
    terraform.change(file, old, new)
    folder = file.rpartition("/")[0]
    terraform.good(folder, "init")
    done = terraform.run(folder, "validate")
    assert done.returncode == 1
    assert said in " ".join(done.stderr.split())


BREAKS = [
    ("modules/network/profiles.tf", 'ports = "4240"', 'ports = "4241"', "six rules"),
    (
        "modules/network/profiles.tf",
        'ports = "51820", source = local.everyone',
        'ports = "51820", source = local.subnet',
        "two rules",
    ),
    ("modules/network/main.tf", "fault_domain_count  = 2", "fault_domain_count  = 3", "Aligned"),
    (
        "modules/network/main.tf",
        "outbound_access_enabled = false",
        "outbound_access_enabled = true",
        "vanishing",
    ),
    (
        "modules/network/load_balancer.tf",
        "disable_outbound_snat = var.nat_gateway",
        "disable_outbound_snat = false",
        "leave the way out",
    ),
    (
        "rights.tf",
        "startswith(lower(each.action),",
        "startswith(each.action,",
        "needs no right",
    ),
    (
        "rights.tf",
        "scope    = local.subnet_scope",
        "scope    = local.group_id",
        "given on the subnet",
    ),
    ("rights.tf", 'built_in = "Reader"', 'built_in = "Contributor"', "reading alone"),
    (
        "main.tf",
        "system:serviceaccount:${var.service_account_namespace}",
        "system:serviceaccount:default",
        "chart's ServiceAccount",
    ),
]


@pytest.mark.parametrize(("file", "old", "new", "said"), BREAKS, ids=lambda each: each[:30].strip())
def test_the_modules_own_tests_find_what_is_wrong(terraform, file, old, new, said):
    terraform.change(file, old, new)
    folder = file.rpartition("/")[0]
    terraform.good(folder, "init")
    done = terraform.run(folder, "test")
    assert done.returncode == 1
    assert said in " ".join(done.stderr.split())


def test_azure_refuses_a_group_that_is_not_there(terraform):
    given = terraform.written({**PAGE, "resource_group_name": "gone"})
    terraform.good("", "init")
    done = terraform.run("", "apply", "-auto-approve", "-input=false", given)
    assert "ResourceGroupNotFound" in done.stderr
