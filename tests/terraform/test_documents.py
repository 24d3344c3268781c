"""The READMEs of the modules against their code; no terraform is needed."""

import json
import re
import subprocess

import pytest

from bigfleet_azure.backends.azure.actions import Reach, actions
from scripts import generate_docs
from tests.support.tools import ROOT
from tests.terraform.conftest import EXAMPLES, MODULES
from tests.terraform.documents import rows, shell_block, table
from tests.terraform.provider import SCHEMA

FOLDER = ROOT / "terraform"


@pytest.mark.parametrize("kind", ["variable", "output"])
@pytest.mark.parametrize("module", MODULES)
def test_a_table_has_every_variable_and_output_with_its_text(module, kind):
    folder = FOLDER / module
    said = table(folder / "README.md", f"{kind.capitalize()}s")
    assert said == rows(folder, kind)


def test_the_table_of_profiles_has_every_rule():
    code = (FOLDER / "modules/network/profiles.tf").read_text()
    rules = re.findall(
        r'priority = (\d+), protocol = "(\w+)", ports = "([\d-]+)", source = local\.(\w+),', code
    )
    places = {"everyone": "anywhere", "subnet": "subnet"}
    said = [
        tuple(cell.strip() for cell in row.split("|")[2:5])
        for row in table(FOLDER / "modules/network/README.md", "Profiles")
    ]
    assert said == [
        (priority, f"{protocol.upper()} {ports}", places[source])
        for priority, protocol, ports, source in rules
    ]
    assert len(said) == 12


def test_the_module_carries_the_list_of_actions_that_the_code_makes():
    assert generate_docs.PAGES[FOLDER / "actions.json"] is generate_docs.azure_actions_data


@pytest.mark.parametrize("folder", [*MODULES, *EXAMPLES])
def test_every_folder_takes_the_version_of_the_provider_that_it_is_checked_with(folder):
    code = (FOLDER / folder / "versions.tf").read_text()
    assert 'version = ">= 5.0, < 6.0"' in code
    assert SCHEMA.name == "azurerm-5.2.0.json"


def test_the_documented_way_without_terraform_writes_the_role_of_the_group(tmp_path):
    commands = shell_block(ROOT / "docs" / "credentials.md", "group.json <<")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    subprocess.run(["sh", "-eu", "-c", commands], cwd=tmp_path, check=True, timeout=60)
    role = json.loads((tmp_path / "group.json").read_text())
    assert role["Actions"] == [
        each.name
        for each in actions()
        if each.reach is Reach.GROUP and each.option in {"", "--bootstrap-method extension"}
    ]
