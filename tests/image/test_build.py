"""What goes into the image's build, and what ends it."""

import subprocess
from pathlib import Path

import pytest

from tests.support.image import Image, files_of, image_of, pip_for_image, require_builder
from tests.support.tools import ROOT

pytestmark = pytest.mark.deploy

FINISH = ROOT / "scripts" / "finish_image.py"
PYTHON = "/opt/bigfleet-azure/bin/python"


def test_build_context_holds_only_what_the_build_reads(tmp_path: Path) -> None:
    require_builder()
    dockerfile = tmp_path / "Context"
    dockerfile.write_text("FROM scratch\nCOPY . /\n")
    with image_of(dockerfile) as name, files_of(name) as root:
        files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    named = {path for path in files if not path.startswith("src/bigfleet_azure/")}
    assert named == {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "requirements/image.txt",
        "requirements/runtime.txt",
        "scripts/finish_image.py",
    }
    assert "src/bigfleet_azure/__main__.py" in files
    assert not [path for path in files if "__pycache__" in path or path.endswith(".pyc")]


def test_base_without_sqlite_ends_the_build(image: Image, tmp_path: Path) -> None:
    [library] = image.root.glob("usr/lib/*/libsqlite3.so.0")
    nothing = tmp_path / "nothing"
    nothing.touch()
    inside = f"/{library.resolve().relative_to(image.root)}"
    done = finish(image, {nothing: inside}, tmp_path)
    assert done.returncode != 0
    assert "libsqlite3" in done.stderr


def test_base_of_another_python_ends_the_build_with_both_versions(
    image: Image, tmp_path: Path
) -> None:
    (tmp_path / "lib" / "python3.12").mkdir(parents=True)
    done = finish(image, {tmp_path / "lib": "/opt/bigfleet-azure/lib"}, tmp_path)
    assert done.returncode != 0
    assert "BASE_IMAGE has Python 3.13, BUILD_IMAGE has python3.12" in done.stderr


def finish(
    image: Image, binds: dict[Path, str], tmp_path: Path
) -> subprocess.CompletedProcess[str]:
    """Run the build's last step in the image, with other files in place of some of its own."""
    script = tmp_path / "script"
    script.mkdir()
    (script / FINISH.name).write_text(FINISH.read_text())
    return image.run(PYTHON, f"/tmp/{FINISH.name}", binds={**binds, script: "/tmp"}, user="0:0")


@pytest.mark.parametrize("group", ["image", "runtime"])
def test_every_package_has_a_wheel_for_arm64(group: str, tmp_path: Path) -> None:
    require_builder()
    dry = ("--dry-run", "--ignore-installed", f"--target={tmp_path}")
    pip_for_image("install", "arm64", group, *dry)
