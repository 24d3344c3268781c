"""What becomes of each shell command that a page shows: where it is run, or why it is not."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.pages import PAGES, READMES, blocks, commands, name_of


@dataclass(frozen=True)
class Rule:
    """Commands of some pages, and what is done with them.

    Attributes:
        pattern: what a command begins with, a regular expression.
        tests: the test files that run them.
        why_not: why nothing runs them.
        pages: the pages it is about; all of them when there are none.
    """

    pattern: str
    tests: tuple[str, ...] = ()
    why_not: str = ""
    pages: tuple[str, ...] = field(default=())

    def takes(self, page: str, command: str) -> bool:
        return (not self.pages or page in self.pages) and bool(re.match(self.pattern, command))


HERE = "tests/docs/test_commands.py"
INSTALL = "docs/install.md"
NO_AZURE = "it asks Azure, and there is no subscription here"
NO_CLUSTER = "it needs a cluster with nodes"

RULES = (
    Rule(r".*", ("tests/process/test_documented.py",), pages=("docs/quickstart.md",)),
    Rule(
        r".*",
        ("tests/process/test_documented_azure.py",),
        pages=("docs/quickstart-azure-double.md",),
    ),
    Rule(r"make (run|test)$", ("tests/process/test_documented.py",), pages=("README.md",)),
    Rule(
        r"docker (build|run) ",
        ("tests/install/test_page.py", "tests/image/test_build.py", "tests/image/test_runs.py"),
        pages=(INSTALL,),
    ),
    Rule(r"docker push ", why_not="there is no registry to push to", pages=(INSTALL,)),
    Rule(
        r"helm (install|upgrade) ",
        ("tests/install/test_chart_commands.py", "tests/kubernetes/test_chart.py"),
        pages=(INSTALL,),
    ),
    Rule(r"helm test ", ("tests/kubernetes/test_chart.py",), pages=(INSTALL,)),
    Rule(r"kubectl .* logs ", ("tests/install/test_page.py",), pages=(INSTALL,)),
    Rule(r"kubectl .* port-forward ", why_not=NO_CLUSTER, pages=(INSTALL,)),
    Rule(r"curl localhost:9090/", ("tests/install/test_page.py",), pages=(INSTALL,)),
    Rule(
        r"terraform -chdir=terraform (init|apply|output)",
        ("tests/install/test_page.py", "tests/terraform/test_modules.py"),
        pages=(INSTALL,),
    ),
    Rule(
        r"python3 - > group.json <<",
        ("tests/terraform/test_documents.py",),
        pages=("docs/credentials.md",),
    ),
    Rule(
        r"(bigfleet-azure machines|grpcurl|curl) ",
        ("tests/alerts/test_page.py",),
        pages=("docs/troubleshooting.md",),
    ),
    Rule(r"bigfleet-azure prices ", ("tests/cli/test_prices.py",)),
    Rule(r"bigfleet-azure offerings check .*--live", ("tests/cli/test_prices.py",)),
    Rule(r"bigfleet-azure (offerings check|state) ", (HERE,)),
    Rule(r"bigfleet-azure --location ", (HERE, "tests/daemon_settings/test_azure_page.py")),
    Rule(
        r"helm install ",
        ("tests/chart/test_rendered.py", "tests/kubernetes/test_chart.py"),
        pages=("helm/bigfleet-azure/README.md",),
    ),
    Rule(r"export ARM_SUBSCRIPTION_ID=", why_not="it sets a variable for Terraform"),
    Rule(r"terraform ", ("tests/terraform/test_modules.py",)),
    Rule(r"az ", why_not=NO_AZURE),
    Rule(
        r"(python3 -m venv|/opt/bigfleet-azure/bin/pip|install -|systemctl|journalctl) ?",
        why_not="it changes the host; the unit is checked in tests/systemd",
    ),
    Rule(r"wget |xz |qemu-img |azcopy |talosctl ", why_not="it fetches or makes a Talos image"),
    Rule(r"kubectl ", why_not=NO_CLUSTER),
)


@dataclass(frozen=True)
class Shown:
    """A command as a page shows it."""

    page: Path
    text: str

    def __str__(self) -> str:
        return f"{name_of(self.page)}: {self.text[:60]}"

    @property
    def rule(self) -> Rule | None:
        """The first rule about it."""
        return next((rule for rule in RULES if rule.takes(name_of(self.page), self.text)), None)


SHOWN = [
    Shown(page, command)
    for page in (*PAGES, *READMES)
    for block in blocks(page, "sh")
    for command in commands(block)
]
