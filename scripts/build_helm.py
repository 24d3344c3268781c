"""Build Helm from its Go module for the tests of the chart.

It is built once, in two minutes, into the cache folder of `build_kubernetes`; later calls do
nothing. Run it as `python -m scripts.build_helm`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.build_kubernetes import folder

HELM = "3.22.0"
PROGRAM = f"helm-{HELM}"
"""Name of the executable in the cache folder; a newer version is another file."""


def build(target: Path) -> None:
    """Build Helm and put it at `target` in one step.

    Raises:
        subprocess.CalledProcessError: Go has said why on the terminal.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="helm-") as made:
        package = f"helm.sh/helm/v3/cmd/helm@v{HELM}"
        command = ["go", "install", "-trimpath", "-ldflags=-s -w", package]
        subprocess.run(command, check=True, env={**os.environ, "GOBIN": made})
        (Path(made) / "helm").replace(target)


def main() -> int:
    """Build it if it is not there yet."""
    target = folder() / PROGRAM
    if not target.exists():
        if shutil.which("go") is None:
            print("SKIPPED: Go is not installed, so no Helm was built", file=sys.stderr)
            return 0
        target.parent.mkdir(parents=True, exist_ok=True)
        print(f"Building {PROGRAM} into {target.parent} ...", flush=True)
        build(target)
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
