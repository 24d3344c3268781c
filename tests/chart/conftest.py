"""The matrix: every way to use the chart that is tested, rendered once."""

from pathlib import Path

import pytest
import trustme

from tests.chart.things import OFFERINGS, Case, Release

CASES = {
    "page": Case(values=("eastus.values",)),
    "page with TLS": Case(
        values=("eastus.values", "tls"),
        own={"bigfleet-azure-tls": {"tls.crt": b"c", "tls.key": b"k", "ca.crt": b"a"}},
    ),
    "page with a ServiceAccount": Case(values=("eastus.values", "service-account")),
    "upstream": Case(values=("upstream",)),
    "everything": Case(
        values=("everything",),
        own={
            "kubeconfigs": {"prod": b"apiVersion: v1\nkind: Config\n"},
            "capacity-eastus-tls": {"tls.crt": b"c", "tls.key": b"k", "ca.crt": b"a"},
            "callback-tls": {"tls.crt": b"c", "tls.key": b"k"},
        },
    ),
    "existing": Case(
        values=("existing",),
        own={
            "principal": {"password": b"hunter2"},
            "user-data": {"cloud-init.yaml": b"\x00\xff#cloud-config\r\n"},
            "offerings": {"eastus.json": OFFERINGS.encode()},
            "prices": {"prices.json": b'{"Standard_D4s_v5": {"on_demand": 0.15}}'},
            "tokens": {"shared": b"s" * 32, "per-machine": b"p" * 32, "state": b"k" * 32},
        },
    ),
    "talos": Case(values=("talos",), own={"kubeconfigs": {"cozystack": b"apiVersion: v1\n"}}),
    "fake": Case(values=("fake",)),
    "in memory disk": Case(values=("in-memory-disk",)),
}


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Helm's own folder: nothing of the person who runs the tests."""
    return tmp_path_factory.mktemp("helm")


@pytest.fixture(scope="session")
def releases(home: Path) -> dict[str, Release]:
    offerings = home / "offerings.eastus.json"
    offerings.write_text(OFFERINGS, encoding="utf-8")
    ca = home / "ca.pem"
    trustme.CA().cert_pem.write_to_path(ca)
    more = {
        "page": (f"--set-file=offerings.content={offerings}",),
        "page with TLS": (f"--set-file=offerings.content={offerings}",),
        "everything": (f"--set-file=azure.armCa={ca}",),
    }
    return {name: case.render(home, *more.get(name, ())) for name, case in CASES.items()}


@pytest.fixture(params=CASES)
def release(releases: dict[str, Release], request: pytest.FixtureRequest) -> Release:
    return releases[request.param]
