"""External programs that some tests drive, and what happens where they are missing.

A missing tool skips the test loudly. Under REQUIRE_TOOLS=1, which CI sets, it fails the test,
except where the tool's basis (Go for grpcurl) is named in ABSENT_TOOLS as absent from the machine.
"""

import os
import shutil
import sysconfig
from pathlib import Path

import pytest

from scripts import build_helm, build_kubernetes

ROOT = Path(__file__).resolve().parent.parent.parent
# What each tool is built with; a tool without an entry has no excuse to be missing.
BASIS = {
    "grpcurl": "go",
    "actionlint": "go",
    build_helm.PROGRAM: "go",
    # No package of Debian, Go or Python brings it.
    "terraform": "terraform",
    "kubectl": "kubectl",
    **{program.file: "go" for program in build_kubernetes.PROGRAMS},
}


def require_tool(name: str) -> Path:
    """Return the path of the program `name`, or skip or fail the calling test."""
    places = [
        str(ROOT / ".tools" / "bin"),
        sysconfig.get_path("scripts"),
        str(build_kubernetes.folder()),
        os.environ["PATH"],
    ]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found:
        return Path(found)
    absent = os.environ.get("ABSENT_TOOLS", "").split()
    if os.environ.get("REQUIRE_TOOLS") == "1" and BASIS.get(name) not in absent:
        pytest.fail(
            f"{name} is not installed, and REQUIRE_TOOLS=1 does not let this test be skipped"
        )
    pytest.skip(f"{name} is not installed")
