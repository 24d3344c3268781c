"""The Terraform modules under a real terraform: layout, validity, their own tests, and applying."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bigfleet_azure.backends.azure.actions import Reach, actions
from bigfleet_azure.backends.azure.credentials import chosen_method
from tests.chart.things import Case
from tests.support.tools import ROOT, require_tool
from tests.terraform.conftest import EXAMPLES, MODULES, Terraform
from tests.terraform.documents import shell_block
from tests.terraform.provider import ISSUER, SUBSCRIPTION, TENANT

pytestmark = [pytest.mark.deploy, pytest.mark.process]

ALWAYS = {"", "--image is a marketplace URN"}
"""Options of the actions that every role of the machines' group or the subscription has."""

PAGE = {
    "name": "bigfleet-azure-eastus",
    "location": "eastus",
    "resource_group_name": "bigfleet-eastus",
    "oidc_issuer_url": ISSUER,
    "service_account_namespace": "bigfleet",
    "service_account_name": "bigfleet-azure-eastus",
}
"""The six variables of the installation guide."""

PRINCIPAL = {
    "client_id": "44444444-4444-4444-4444-444444444444",
    "object_id": "55555555-5555-5555-5555-555555555555",
}
NETWORK = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/net/providers/Microsoft.Network"
COMPUTE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/kept/providers/Microsoft.Compute"
IDENTITY = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/kept/providers/Microsoft.ManagedIdentity"
SUBNET = f"{NETWORK}/virtualNetworks/vnet/subnets/nodes"
IMAGE = f"{COMPUTE}/galleries/gallery/images/talos/versions/1.12.5"
LINKED = {
    "nsg": f"{NETWORK}/networkSecurityGroups/n",
    "asg": f"{NETWORK}/applicationSecurityGroups/a",
    "pool": f"{NETWORK}/loadBalancers/l/backendAddressPools/p",
    "avset": f"{COMPUTE}/availabilitySets/a",
    "reserved": f"{COMPUTE}/capacityReservationGroups/c",
    "keys": f"{COMPUTE}/diskEncryptionSets/d",
    "image": f"{COMPUTE}/images/i",
    "gallery": f"{COMPUTE}/galleries/g",
    "identity": f"{IDENTITY}/userAssignedIdentities/i",
}
"""One resource of each kind that machines can refer to."""


def granted(terraform: Terraform) -> set[str]:
    """The actions of all custom roles that were made."""
    return {
        action
        for (kind, _), each in terraform.azure.resources.items()
        if kind == "role_definition"
        for action in each["permissions"][0]["actions"]
    }


def settings_of(values: str, scratch: Path, *more: str):
    """What the daemon is told when the chart is installed with these values."""
    file = scratch / "values.yaml"
    file.write_text(values)
    own = {"bigfleet-azure-eastus-client-secret": {"client-secret": b"hunter2"}}
    case = Case(values=(), own={**own, "kubeconfigs": {"butler": b"apiVersion: v1\n"}})
    return case.render(scratch, f"--values={file}", *more).settings()


def test_the_modules_are_laid_out_as_terraform_does_it():
    program = require_tool("terraform")
    arguments = [f"-chdir={ROOT / 'terraform'}", "fmt", "-check", "-recursive", "-diff"]
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("folder", [*MODULES, *EXAMPLES])
def test_a_folder_is_valid_under_the_providers_schema(terraform, folder):
    terraform.good(folder, "init")
    terraform.good(folder, "validate")


@pytest.mark.parametrize("folder", MODULES)
def test_the_modules_own_tests_pass(terraform, folder):
    terraform.good(folder, "init")
    assert "0 failed" in terraform.good(folder, "test")


def test_the_documented_commands_apply_the_six_variables(terraform, tmp_path):
    commands = shell_block(ROOT / "terraform" / "README.md", "terraform -chdir=terraform apply")
    assert all(f"-var {name}=" in commands for name in PAGE)
    assert commands.count("-var ") == len(PAGE)
    az = tmp_path / "bin" / "az"
    az.parent.mkdir()
    az.write_text(f'#!/bin/sh\ncase "$1" in aks) echo "{ISSUER}" ;; esac\n')
    az.chmod(0o755)
    path = f"{az.parent}:{terraform.program.parent}:{terraform.environment['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=tmp_path,
        env={**terraform.environment, "PATH": path},
        input="yes\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = [kind for kind, _ in terraform.azure.resources]
    assert sorted(kinds) == [
        "federated_identity_credential",
        *["role_assignment"] * 3,
        *["role_definition"] * 3,
        "user_assigned_identity",
    ]
    values = (tmp_path / "eastus.values.yaml").read_text()
    settings = settings_of(values, tmp_path, f"--set=azure.subnetId={SUBNET}")
    assert settings.provider == "azure-eastus"
    assert settings.azure.location == "eastus"
    assert settings.azure.subscription_id == SUBSCRIPTION
    assert settings.azure.resource_group == "bigfleet-eastus"
    assert chosen_method(settings.azure.credentials) == "workload-identity"
    assert settings.azure.credentials.tenant_id == TENANT


def test_what_was_made_can_be_destroyed(terraform):
    terraform.apply("", **PAGE)
    assert terraform.azure.resources
    terraform.good("", "destroy", "-auto-approve", terraform.written(PAGE))
    assert terraform.azure.resources == {}


def test_the_default_roles_hold_what_the_code_needs_by_default(terraform):
    terraform.apply("", **PAGE)
    needed = {
        each.name for each in actions() if each.option in ALWAYS | {"--bootstrap-method extension"}
    }
    assert granted(terraform) == needed


def test_the_roles_hold_every_listed_action_when_all_is_used(terraform):
    terraform.apply("", **PAGE, subnet_id=SUBNET, public_ip=True, linked_ids=LINKED)
    assert granted(terraform) == {each.name for each in actions()}


def test_images_that_join_by_themselves_leave_the_least(terraform):
    terraform.apply("", **PAGE, bootstrap_method="none")
    assert granted(terraform) == {each.name for each in actions() if each.option in ALWAYS}


def test_without_custom_roles_the_built_in_ones_do_not_collide(terraform):
    terraform.apply("", **PAGE, use_custom_role=False)
    assert granted(terraform) == set()
    roles = {
        each["role_definition_name"]: each["scope"]
        for (kind, _), each in terraform.azure.resources.items()
        if kind == "role_assignment"
    }
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/bigfleet-eastus"
    assert roles == {
        "Contributor": group,
        "Reader": f"/subscriptions/{SUBSCRIPTION}",
        "Network Contributor": group,
    }


def test_an_option_of_the_code_is_known_to_the_module():
    switched = {each.option for each in actions() if each.reach is not Reach.LINKED}
    assert switched == ALWAYS | {"--bootstrap-method extension", "--public-ip"}


def test_the_example_for_aks_gives_values_for_the_chart(terraform, tmp_path):
    outputs = terraform.apply(EXAMPLES[0], aks_name="aks", aks_resource_group_name="aks-rg")
    settings = settings_of(outputs["helm_values"], tmp_path)
    assert settings.azure.profile.subnet_id.endswith("/bigfleet-westeurope-vnet/subnets/nodes")
    assert chosen_method(settings.azure.credentials) == "workload-identity"
    assert settings.azure.credentials.client_id == outputs["client_id"]


def test_the_example_of_a_service_principal_gives_values_for_the_chart(terraform, tmp_path):
    given = {"location": "eastus", "resource_group_name": "fleet", "subnet_id": SUBNET}
    outputs = terraform.apply(EXAMPLES[1], **given, **PRINCIPAL)
    settings = settings_of(outputs["helm_values"], tmp_path)
    assert settings.azure.profile.subnet_id == SUBNET
    assert chosen_method(settings.azure.credentials) == "service-principal"
    assert settings.azure.credentials.client_id == PRINCIPAL["client_id"]
    assert settings.azure.credentials.tenant_id == TENANT
    assert settings.azure.credentials.client_secret.reveal() == b"hunter2"


def test_the_example_for_talos_gives_offerings_and_values(terraform, tmp_path):
    given = {"cluster": "butler", "location": "eastus", "image_id": IMAGE}
    outputs = terraform.apply(EXAMPLES[2], **given, service_principal=PRINCIPAL)
    offerings = tmp_path / "offerings.json"
    offerings.write_text(outputs["offerings"])
    check = [sys.executable, "-m", "bigfleet_azure", "offerings", "check", str(offerings)]
    subprocess.run([*check, "--location=eastus"], check=True, timeout=60)
    [offering] = json.loads(outputs["offerings"])
    scopes = {
        each["scope"]
        for (kind, _), each in terraform.azure.resources.items()
        if kind == "role_assignment"
    }
    wanted = {offering["availability_set_id"], offering["nsg_id"], IMAGE.partition("/images/")[0]}
    assert wanted | set(offering["lb_backend_pool_ids"]) <= scopes
    assert "bootstrapMethod" in outputs["helm_values"]
