"""What the READMEs of the modules say: shell blocks, and the tables that repeat the code."""

import json
import re
from pathlib import Path

_BLOCK = re.compile(r'^(variable|output) "(\w+)" {\n(.*?)^}', re.DOTALL | re.MULTILINE)
_DESCRIPTION = re.compile(r'^  description = (".*")$', re.MULTILINE)
_DEFAULT = re.compile(r"^  default +?= (.*)$", re.MULTILINE)


def shell_block(page: Path, marked: str) -> str:
    """The one shell block of the page that holds this text."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    [block] = [each for each in blocks if marked in each]
    assert isinstance(block, str)
    return block


def rows(folder: Path, kind: str) -> list[str]:
    """The rows that a README's table of variables or outputs must have."""
    file = folder / f"{kind}s.tf"
    made = []
    for found, name, body in _BLOCK.findall(file.read_text()):
        assert found == kind
        description = _DESCRIPTION.search(body)
        assert description, f"{name} has no description"
        cells = [f"`{name}`"]
        if kind == "variable":
            default = _DEFAULT.search(body)
            cells.append(f"`{default[1]}`" if default else "required")
        cells.append(json.loads(description[1]).replace("|", "\\|"))
        made.append(f"| {' | '.join(cells)} |")
    return made


def table(page: Path, heading: str) -> list[str]:
    """The rows of the first table under a heading."""
    text = page.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in text.splitlines() if line.startswith("|")][2:]
