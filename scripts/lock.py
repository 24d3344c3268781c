"""Write the hash-pinned files in requirements/ from pyproject.toml (`make lock`).

Each file holds everything its environment needs, for every supported Python and platform. The
files name packages and hashes only, never a package index: which one is asked is the installer's
affair.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = "3.11"
# `lint` is the largest; the others are held to its versions, so that no two files disagree.
LARGEST = "lint"
INPUTS = {
    LARGEST: ["pyproject.toml", "--group", "lint"],
    "test": ["pyproject.toml", "--group", "test"],
    "runtime": ["pyproject.toml"],
    "build": ["--group", "build"],
    "docs": ["--group", "docs"],
    "image": ["--group", "image"],
}


def lock(name: str, *options: str) -> None:
    """Write requirements/<name>.txt; versions already there are kept where they still fit."""
    target = f"requirements/{name}.txt"
    constraint = [] if name == LARGEST else ["--constraint", f"requirements/{LARGEST}.txt"]
    command = [
        str(Path(sysconfig.get_path("scripts")) / "uv"),
        "pip",
        "compile",
        *INPUTS[name],
        *constraint,
        "--universal",
        f"--python-version={OLDEST_PYTHON}",
        "--generate-hashes",
        "--no-emit-index-url",
        "--no-header",
        "--no-annotate",
        "--quiet",
        f"--output-file={target}",
        *options,
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    if "://" in (ROOT / target).read_text(encoding="utf-8"):
        raise SystemExit(f"error: {target} names an address")


if __name__ == "__main__":
    for each in INPUTS:
        lock(each, *sys.argv[1:])
        print(f"requirements/{each}.txt")
