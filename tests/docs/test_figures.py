"""Figures that pages tell, against what the code does."""

import re
from fractions import Fraction

import pytest

from bigfleet_azure.backends.azure.poller import SLOW_AFTER, USUAL_SECONDS
from bigfleet_azure.domain.quantity import GIB, MIB, allocatable, parse
from tests.support.pages import DOCS, table

OFFERINGS = DOCS / "offerings.md"


def kept(resource: str, amount: Fraction) -> Fraction:
    """What the page's table says is kept of so many cores, GiB of memory or GiB of disk."""
    total, left = Fraction(0), amount
    for name, part, share in table(OFFERINGS, "resource"):
        if name != f"`{resource}`":
            continue
        number = Fraction(share.split()[0])
        if share.endswith("MiB"):
            total += number * MIB / GIB
            continue
        size = re.search(r"\d+", part)
        step = min(left, Fraction(size[0])) if size else left
        total += step * number / 100
        left -= step
    return total


@pytest.mark.parametrize("vcpus", [1, 2, 3, 4, 5, 8, 48, 416])
@pytest.mark.parametrize("memory_gib", [1, 4, 7, 8, 16, 100, 128, 11_400])
def test_what_a_machine_leaves_to_workloads_is_as_the_page_says(
    vcpus: int, memory_gib: int
) -> None:
    usable = allocatable(
        vcpus=vcpus, memory_bytes=memory_gib * GIB, disk_bytes=memory_gib * GIB, max_pods=110
    )
    for resource, amount, unit, step in (
        ("cpu", vcpus, 1, Fraction(1, 1000)),
        ("memory", memory_gib, GIB, Fraction(MIB, GIB)),
        ("ephemeral-storage", memory_gib, GIB, Fraction(1)),
    ):
        left = amount - kept(resource, Fraction(amount))
        assert abs(parse(usable[resource]) / unit - left) <= step, resource


def test_the_example_of_the_page_is_what_the_formula_gives() -> None:
    usable = allocatable(vcpus=4, memory_bytes=16 * GIB, disk_bytes=30 * GIB, max_pods=110)
    page = " ".join(OFFERINGS.read_text().split())
    for resource in ("cpu", "memory", "ephemeral-storage"):
        assert f"`{resource}` {usable[resource]}" in page


def test_the_longest_pauses_between_questions_are_those_of_the_code() -> None:
    page = " ".join((DOCS / "azure.md").read_text().split())
    for kind, what in (
        ("vm.create", "a new VM"),
        ("vm.delete", "a deletion"),
        ("extension.put", "the hook's extension"),
    ):
        assert f"{SLOW_AFTER * USUAL_SECONDS[kind]:.0f} s for {what}" in page
