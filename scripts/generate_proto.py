"""Write the generated wire code of `bigfleet_azure._pb` from proto/ (`make proto`).

The generators know only the layout of the .proto file. Their modules are moved into the flat
package `bigfleet_azure._pb`, and the places where they name each other are rewritten. The
descriptor keeps its own file name, because server reflection shows it.
"""

import argparse
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO_ROOT = ROOT / "proto"
PROTO_FILE = "bigfleet/v1alpha1/provider.proto"
PACKAGE = ROOT / "src" / "bigfleet_azure" / "_pb"
MODULES = (
    "provider_pb2.py",
    "provider_pb2.pyi",
    "provider_pb2_grpc.py",
    "provider_pb2_grpc.pyi",
)
# The text a generator writes, and what it must be inside our package.
REWRITES = (
    ("from bigfleet.v1alpha1 import provider_pb2", "from bigfleet_azure._pb import provider_pb2"),
    # Becomes __module__ of every message class; without it messages cannot be pickled.
    ("'bigfleet.v1alpha1.provider_pb2', _globals", "'bigfleet_azure._pb.provider_pb2', _globals"),
    (
        "generated code in bigfleet/v1alpha1/provider_pb2_grpc.py",
        "generated code in bigfleet_azure/_pb/provider_pb2_grpc.py",
    ),
)


def generate(target: Path) -> None:
    """Write the four generated modules into the existing directory `target`."""
    scripts = Path(sysconfig.get_path("scripts"))
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "grpc_tools.protoc",
                f"--proto_path={PROTO_ROOT}",
                f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
                f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
                f"--python_out={scratch}",
                f"--grpc_python_out={scratch}",
                f"--mypy_out=quiet:{scratch}",
                f"--mypy_grpc_out=quiet:{scratch}",
                PROTO_FILE,
            ],
            check=True,
        )
        made = Path(scratch) / Path(PROTO_FILE).parent
        for module in MODULES:
            text = (made / module).read_text(encoding="utf-8")
            for theirs, ours in REWRITES:
                text = text.replace(theirs, ours)
            if "bigfleet.v1alpha1 import" in text:
                raise SystemExit(f"error: {module} still imports from outside the package")
            (target / module).write_text(text, encoding="utf-8")


def main() -> None:
    """Parse the command line and generate."""
    parser = argparse.ArgumentParser(description="Generate bigfleet_azure._pb from proto/.")
    parser.add_argument("--out", type=Path, default=PACKAGE, help="directory to write into")
    arguments = parser.parse_args()
    if not shutil.which("protoc-gen-mypy", path=sysconfig.get_path("scripts")):
        raise SystemExit("error: run this with the project's environment: make proto")
    generate(arguments.out)


if __name__ == "__main__":
    main()
