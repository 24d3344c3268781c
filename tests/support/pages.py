"""The pages people read, taken apart: fenced blocks, commands, tables, headings."""

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from tests.support.tools import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
"""What the documentation's site is made of."""

READMES = sorted(
    [
        *ROOT.glob("*.md"),
        *(path for top in ("deploy", "helm", "terraform") for path in ROOT.glob(f"{top}/**/*.md")),
        *ROOT.glob("tests/**/README.md"),
    ]
)
"""What is read on GitHub."""

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<kind>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=ticks) *$",
    re.MULTILINE | re.DOTALL,
)


def name_of(page: Path) -> str:
    """The page's path in the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, kind: str) -> list[str]:
    """The page's fenced blocks of that language."""
    found = []
    for match in _FENCE.finditer(page.read_text(encoding="utf-8")):
        if match["kind"].strip() == kind:
            lines = match["text"].splitlines(keepends=True)
            found.append("".join(line.removeprefix(match["indent"]) for line in lines))
    return found


def block(page: Path, kind: str, containing: str) -> str:
    """The page's only block of that language with such a text in it."""
    [found] = [each for each in blocks(page, kind) if containing in each]
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def commands(text: str) -> list[str]:
    """The commands of a shell block: continued lines joined, a document after `<<` kept with it."""
    found: list[str] = []
    end = ""
    for line in text.replace("\\\n", " ").splitlines():
        if end:
            found[-1] += f"\n{line}"
            end = "" if line == end else end
        elif line.strip() and not line.startswith("#"):
            found.append(" ".join(line.split()))
            document = re.search(r"<<'?(\w+)'?", line)
            end = document[1] if document else ""
    return found


def command(page: Path, beginning: str) -> str:
    """The page's only command that begins so."""
    every = [each for text in blocks(page, "sh") for each in commands(text)]
    [found] = [each for each in every if each.startswith(beginning)]
    return found


def table(page: Path, first: str) -> list[list[str]]:
    """The cells of all tables whose first column has that head, without their heads."""
    rows: list[list[str]] = []
    inside = False
    for line in prose(page).splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and cells[0] == first:
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not set("".join(cells)) <= {"-", ":", " "}:
            rows.append(cells)
    return rows


@dataclass(frozen=True)
class Link:
    """A link of a page, as it is written."""

    page: Path
    target: str

    def __str__(self) -> str:
        return f"{name_of(self.page)}: {self.target}"


def links(page: Path) -> list[Link]:
    """The page's links, those of its reference list included."""
    text = re.sub(r"`[^`\n]*`", "``", prose(page))
    inline = re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", text)
    listed = re.findall(r"^\[[^\]]+\]: (\S+)", text, re.MULTILINE)
    return [Link(page, target) for target in (*inline, *listed)]


def anchors(page: Path) -> set[str]:
    """The names under which the page's headings can be linked, on the site and on GitHub alike.

    A heading whose two names differ cannot be linked.
    """
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+?)\s*$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
        plain = re.sub(r"[^\w\s-]", "", plain).strip().lower()
        site = re.sub(r"[-\s]+", "-", plain)
        github = re.sub(r"[^\w\s-]", "", text.strip().lower()).replace(" ", "-")
        if site == github:
            found.add(site)
    return found
