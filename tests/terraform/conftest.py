"""terraform over a copy of `terraform/`, with a stand-in for the azurerm provider."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.tools import ROOT, require_tool
from tests.terraform.provider import Azurerm, serving

MODULES = ("", "modules/network")
EXAMPLES = (
    "examples/aks-workload-identity",
    "examples/service-principal",
    "examples/talos-ha-network",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terraform:
    """The program, a copy of the modules that it may write into, and the Azure that it finds."""

    program: Path
    copy: Path
    environment: dict[str, str]
    azure: Azurerm

    def run(self, folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        where = f"-chdir={self.copy / folder}"
        return subprocess.run(
            [self.program, where, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def good(self, folder: str, *arguments: str) -> str:
        """Its output; the command must end well."""
        done = self.run(folder, *arguments)
        assert done.returncode == 0, f"{arguments[0]} of {folder!r}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def apply(self, folder: str, **variables: object) -> dict[str, Any]:
        """Apply, see that nothing is left to change, and return the outputs."""
        given = self.written(variables)
        self.good(folder, "init")
        self.good(folder, "apply", "-auto-approve", "-input=false", given)
        self.good(folder, "plan", "-detailed-exitcode", "-input=false", given)
        outputs = json.loads(self.good(folder, "output", "-json"))
        return {name: each["value"] for name, each in outputs.items()}

    def refusals(self, folder: str, **variables: object) -> list[str]:
        """What a plan is refused with."""
        given = self.written(variables)
        self.good(folder, "init")
        done = self.run(folder, "plan", "-json", "-input=false", given)
        assert done.returncode == 1
        events = map(json.loads, done.stdout.splitlines())
        return [e["diagnostic"]["detail"] for e in events if e["type"] == "diagnostic"]

    def written(self, variables: Mapping[str, object]) -> str:
        """The argument that names a file with these variables."""
        file = self.copy / "given.tfvars.json"
        file.write_text(json.dumps(variables))
        return f"-var-file={file}"

    def change(self, file: str, old: str, new: str) -> None:
        """Change the copy."""
        path = self.copy / file
        text, count = re.subn(re.escape(old), lambda _: new, path.read_text(), count=1)
        assert count == 1, f"{file} has no {old!r}"
        path.write_text(text)


@pytest.fixture
def terraform(tmp_path: Path) -> Iterator[Terraform]:
    program = require_tool("terraform")
    copy = tmp_path / "terraform"
    shutil.copytree(
        ROOT / "terraform", copy, ignore=shutil.ignore_patterns(".terraform*", "*tfstate*")
    )
    # Nothing of the person who runs the tests, and no question for newer versions.
    settings = tmp_path / "terraformrc"
    settings.touch()
    with serving(tmp_path) as (azure, reattach):
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "TF_CLI_CONFIG_FILE": str(settings),
            "TF_CLI_ARGS": "-no-color",
            "CHECKPOINT_DISABLE": "1",
            **reattach,
        }
        yield Terraform(program=program, copy=copy, environment=environment, azure=azure)
