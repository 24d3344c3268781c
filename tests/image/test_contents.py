"""What the image holds, and above all what it does not."""

import json
import os
import re
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigfleet_azure import __version__
from tests.support.image import STATE_FOLDER, Image

pytestmark = pytest.mark.deploy

USER = 65532
ENVIRONMENT = "opt/bigfleet-azure"
PACKAGES = f"{ENVIRONMENT}/lib/python3.13/site-packages"
LIBRARY = "usr/lib/python3.13"

PROGRAMS = {"usr/bin/python3.13", f"{ENVIRONMENT}/bin/bigfleet-azure"}
"""All that may be started in it; the C library's loader, which any program needs, aside."""

WRITABLE = {"home/nonroot", "tmp", "var/tmp", "run/lock", "var/lock", STATE_FOLDER.lstrip("/")}


def paths(image: Image) -> Iterator[Path]:
    """Every file and folder in it, links aside."""
    for folder, folders, files in os.walk(image.root):
        for name in (*folders, *files):
            path = Path(folder, name)
            if not path.is_symlink():
                yield path


def distributions(image: Image) -> dict[str, str]:
    """Names and versions of the Python packages that are installed in it."""
    found = {}
    for folder in (image.root / PACKAGES).glob("*.dist-info"):
        name, version = folder.name.removesuffix(".dist-info").split("-")
        found[normal(name)] = version
    return found


def runs(image: Image, program: Path) -> bool:
    """Whether the kernel can start it: a binary, or a script whose interpreter is there."""
    with program.open("rb") as file:
        first = file.readline(200)
    if not first.startswith(b"#!"):
        return first.startswith(b"\x7fELF")
    return os.path.lexists(image.root / first[2:].split()[0].decode().lstrip("/"))


def normal(name: str) -> str:
    """Name of a Python package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_only_python_and_the_daemon_can_be_started(image: Image) -> None:
    files = [path for path in paths(image) if path.is_file() and path.suffix != ".py"]
    executable = [path for path in files if path.stat().st_mode & 0o111 and ".so" not in path.name]
    started = {str(path.relative_to(image.root)) for path in executable if runs(image, path)}
    assert started == PROGRAMS


@pytest.mark.parametrize("module", ["pip", "ensurepip"])
def test_nothing_can_be_installed_in_it(image: Image, module: str) -> None:
    assert (
        image.python(f"import importlib.util; print(importlib.util.find_spec({module!r}))")
        == "None"
    )
    assert module not in distributions(image)


def test_every_module_is_compiled_and_its_source_is_not_looked_at(image: Image) -> None:
    sources = [
        path
        for root in (PACKAGES, LIBRARY)
        for path in (image.root / root).rglob("*.py")
        if not re.search(r"/(?:test|tests|lib2to3)/", str(path))
    ]
    assert len(sources) > 2000
    for source in sources:
        compiled = source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc"
        flags = struct.unpack("<I", compiled.read_bytes()[4:8])[0]
        assert flags == 1, f"{compiled} is checked against its source"


def test_user_of_the_image_may_write_only_where_data_belongs(image: Image) -> None:
    writable = {
        str(path.relative_to(image.root))
        for path in paths(image)
        if path.stat().st_uid == USER
        or path.stat().st_gid == USER
        or path.stat().st_mode & stat.S_IWOTH
    }
    assert writable <= WRITABLE
    folder = image.root / STATE_FOLDER.lstrip("/")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder.stat().st_uid, folder.stat().st_gid) == (USER, USER)


def test_bill_of_materials_names_what_is_installed_and_no_more(image: Image) -> None:
    text = (image.root / ENVIRONMENT / "sbom.cdx.json").read_text()
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    itself = bill["metadata"]["component"]
    listed = {normal(part["name"]): part["version"] for part in bill["components"]}
    installed = distributions(image)
    assert (itself["name"], installed.pop("bigfleet-azure")) == ("bigfleet-azure", __version__)
    assert listed == installed
    assert all(part["purl"].startswith("pkg:pypi/") for part in bill["components"])
    depending = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    assert any(ref.startswith("grpcio==") for ref in depending[itself["bom-ref"]])
    assert str(image.root) not in text


def test_configuration_is_what_the_install_page_says(image: Image) -> None:
    assert image.config["User"] == "65532:65532"
    assert set(image.config["ExposedPorts"]) == {"9000/tcp", "9090/tcp"}
    assert image.config["Entrypoint"] == [
        "/opt/bigfleet-azure/bin/python",
        "-m",
        "bigfleet_azure",
    ]
    assert not image.config.get("Cmd")


def test_labels_are_those_of_the_image_specification(image: Image) -> None:
    prefix = "org.opencontainers.image."
    labels = {
        name.removeprefix(prefix): value
        for name, value in image.config["Labels"].items()
        if name.startswith(prefix)
    }
    assert labels.pop("description")
    assert labels == {
        "title": "bigfleet-azure",
        "licenses": "MIT",
        "base.name": "gcr.io/distroless/python3-debian13:nonroot",
    }


def test_pips_configuration_leaves_no_trace(image: Image) -> None:
    assert not list((image.root / "etc").glob("pip*"))
    assert not list(image.root.glob("var/cache/*.whl"))
    assert "find-links" not in json.dumps(image.config)


def test_size_is_reported(image: Image, figure) -> None:
    figure(f"files: {image.size / 1e6:.0f} MB")
    assert image.size < 300e6
