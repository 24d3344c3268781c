"""Build etcd and kube-apiserver from their Go modules for `make test-kubernetes`.

They are built once into a cache folder and used from there; the first build takes five to
seven minutes on two cores, later calls none. The folder is BIGFLEET_TEST_TOOLS, else
~/.cache/bigfleet-azure-tools. Run it as `python -m scripts.build_kubernetes`. Which servers are
started, and how, belongs to `tests.support.kube`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

KUBERNETES = "1.34.2"
ETCD = "3.6.13"

STAGED = f"v0.{KUBERNETES.partition('.')[2]}"
"""Version under which Kubernetes' own parts are published; it names them v0.0.0 itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server whose main function is in a module, and the few lines that call it.

    Attributes:
        name: of the executable.
        version: of `module`; part of the file name, so that a newer one is built anew.
        module: the Go module that is wanted.
        packages: what `main` imports, with versions; whole packages, because the sums of what
            they need are noted only then.
        main: the program.
        staged: whether the module names its own parts by v0.0.0, to be replaced by `STAGED`.
    """

    name: str
    version: str
    module: str
    packages: tuple[str, ...]
    main: str
    staged: bool = False

    @property
    def file(self) -> str:
        """Name of the executable in the cache folder."""
        return f"{self.name}-{self.version}"


PROGRAMS = (
    Program(
        name="etcd",
        version=ETCD,
        module="go.etcd.io/etcd/server/v3",
        packages=(f"go.etcd.io/etcd/server/v3/etcdmain@v{ETCD}",),
        main="""package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
""",
    ),
    Program(
        name="kube-apiserver",
        version=KUBERNETES,
        module="k8s.io/kubernetes",
        packages=(
            f"k8s.io/kubernetes/cmd/kube-apiserver/app@v{KUBERNETES}",
            f"k8s.io/component-base/cli@{STAGED}",
        ),
        main="""package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
""",
        staged=True,
    ),
)


def folder() -> Path:
    """Where the executables are kept."""
    named = os.environ.get("BIGFLEET_TEST_TOOLS")
    return Path(named) if named else Path.home() / ".cache" / "bigfleet-azure-tools"


def go(*arguments: str, cwd: Path) -> str:
    """Output of a go command.

    Raises:
        subprocess.CalledProcessError: it failed; it has said why on the terminal.
    """
    command = ["go", *arguments]
    done = subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def replacements(program: Program, work: Path) -> list[str]:
    """Arguments of `go mod edit` that give the module's own parts their published versions."""
    if not program.staged:
        return []
    download = json.loads(
        go("mod", "download", "-json", f"{program.module}@v{program.version}", cwd=work)
    )
    module = json.loads(go("mod", "edit", "-json", download["GoMod"], cwd=work))
    return [
        f"-replace={needed['Path']}={needed['Path']}@{STAGED}"
        for needed in module["Require"]
        if needed["Version"] == "v0.0.0"
    ]


def build(program: Program, target: Path) -> None:
    """Build the program and put it at `target` in one step."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{program.name}-") as made:
        work = Path(made)
        (work / "main.go").write_text(program.main, encoding="utf-8")
        go("mod", "init", f"bigfleet.test/{program.name}", cwd=work)
        replaced = replacements(program, work)
        if replaced:
            go("mod", "edit", *replaced, cwd=work)
        go("get", *program.packages, cwd=work)
        go("build", "-trimpath", "-ldflags=-s -w", "-o", "built", ".", cwd=work)
        (work / "built").replace(target)


def main() -> int:
    """Build what is not there yet."""
    kept = folder()
    missing = [program for program in PROGRAMS if not (kept / program.file).exists()]
    if missing and shutil.which("go") is None:
        print("SKIPPED: Go is not installed, so no kube-apiserver was built", file=sys.stderr)
        return 0
    kept.mkdir(parents=True, exist_ok=True)
    for program in missing:
        print(f"Building {program.file} into {kept} ...", flush=True)
        build(program, kept / program.file)
    for program in PROGRAMS:
        print(kept / program.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
