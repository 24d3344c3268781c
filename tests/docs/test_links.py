"""Whatever a page points to is there: pages, headings, files. Nobody is asked over the network."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.support.pages import DOCS, PAGES, READMES, Link, anchors, links, name_of, prose
from tests.support.tools import ROOT

EVERY = [*PAGES, *READMES]
LINKS = [link for page in EVERY for link in links(page)]

PATH = re.compile(r"`((?:deploy|docs|helm|proto|scripts|src|terraform|tests)/[\w./*-]*)`")


def is_outside(link: Link) -> bool:
    return bool(urlsplit(link.target).scheme)


def test_links_are_found() -> None:
    assert len([link for link in LINKS if not is_outside(link)]) > 60
    assert len([link for link in LINKS if "#" in link.target]) > 5


@pytest.mark.parametrize("link", [x for x in LINKS if not is_outside(x)], ids=str)
def test_a_link_leads_to_something(link: Link) -> None:
    path, _, anchor = link.target.partition("#")
    target = (link.page.parent / path).resolve() if path else link.page
    assert target.exists(), f"{link} does not exist"
    assert target.is_relative_to(ROOT), f"{link} leaves the repository"
    if link.page.is_relative_to(DOCS):
        assert target.is_relative_to(DOCS), f"{link} is not on the site"
    if anchor:
        assert anchor in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize("link", [x for x in LINKS if is_outside(x)], ids=str)
def test_a_link_outside_is_encrypted_and_of_no_single_visitor(link: Link) -> None:
    parts = urlsplit(link.target)
    assert parts.scheme == "https"
    assert not parts.query


@pytest.mark.parametrize("page", EVERY, ids=name_of)
def test_every_path_of_the_repository_that_a_page_names_exists(page: Path) -> None:
    named = PATH.findall(prose(page))
    missing = [path for path in named if not (any(ROOT.glob(path)) or (ROOT / path).exists())]
    assert not missing


def nav_pages(entries: list[dict[str, Any]]) -> list[str]:
    """The pages of a navigation, in its order."""
    found: list[str] = []
    for entry in entries:
        [(_, target)] = entry.items()
        found += nav_pages(target) if isinstance(target, list) else [target]
    return found


def test_the_navigation_has_every_page_once() -> None:
    # The one tag in it names a function, which nobody needs here.
    text = re.sub(r"!!python/name:\S+", "null", (ROOT / "mkdocs.yml").read_text())
    listed = nav_pages(yaml.safe_load(text)["nav"])
    pages = [str(page.relative_to(DOCS)) for page in PAGES]
    assert sorted(listed) == sorted(pages)


def test_the_entry_page_leads_to_every_page() -> None:
    linked = {link.target.partition("#")[0] for link in links(DOCS / "index.md")}
    pages = {str(page.relative_to(DOCS)) for page in PAGES}
    single = {page for page in pages if re.match(r"decisions/\d", page)}
    assert pages - single - {"index.md"} <= linked
