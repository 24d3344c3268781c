"""Last step of the image's build, run by the final stage's own Python: there is no shell to do it.

It compiles the standard library (nothing can be written later, and Debian's packages carry no
bytecode), makes the folder of the state, takes out shells and pip where the base brings any, and
ends the build where this base cannot run the daemon. It imports nothing of the project.
"""

import compileall
import importlib
import os
import py_compile
import re
import shutil
import sys
import sysconfig
from pathlib import Path

STATE_FOLDER = Path("/var/lib/bigfleet-azure")
USER = 65532
"""The user `nonroot` of distroless images, which has no name elsewhere."""

NATIVE = (
    "sqlite3",
    "ssl",
    "ctypes",
    "aiohttp",
    "cryptography.hazmat.bindings._rust",
    "grpc",
    "pydantic_core",
    "yaml",
)
"""What needs shared libraries of the base, or a wheel made for its Python."""

SHELLS = {"ash", "bash", "busybox", "dash", "ksh", "rbash", "sh", "zsh"}
PROGRAM_FOLDERS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
PIP = re.compile(r"pip[0-9.]*")


def compile_library() -> None:
    """Compile the standard library, without the tests that some bases carry in it.

    Raises:
        SystemExit: a file does not compile.
    """
    compiled = compileall.compile_dir(
        sysconfig.get_path("stdlib"),
        force=True,
        quiet=1,
        rx=re.compile(r"/(?:test|tests|lib2to3|dist-packages|site-packages)/"),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not compiled:
        raise SystemExit("error: the standard library of the base image does not compile")


def remove_tools() -> None:
    """Remove shells and pip, where the base image brings them."""
    for folder in {Path(name).resolve() for name in PROGRAM_FOLDERS}:
        for program in folder.iterdir() if folder.is_dir() else ():
            if program.name in SHELLS or PIP.fullmatch(program.name):
                program.unlink()
    library = Path(sysconfig.get_path("stdlib"))
    shutil.rmtree(library / "ensurepip", ignore_errors=True)
    for packages in (library / "site-packages", library.parent / "python3" / "dist-packages"):
        for found in (*packages.glob("pip"), *packages.glob("pip-*.dist-info")):
            shutil.rmtree(found)


def make_state_folder() -> None:
    """Make the folder that only the daemon's user may read and write."""
    STATE_FOLDER.mkdir(parents=True, mode=0o700)
    os.chown(STATE_FOLDER, USER, USER)


def check_base() -> None:
    """Check that this Python is the one the packages were installed for, and has what they need.

    Raises:
        SystemExit: it is another version.
        ImportError: a module, or a shared library that it needs, is missing.
    """
    packages = Path(sysconfig.get_path("purelib"))
    if not packages.is_dir():
        installed = [found.name for found in packages.parent.parent.glob("python*")]
        raise SystemExit(
            f"error: BASE_IMAGE has Python {sys.version_info.major}.{sys.version_info.minor},"
            f" BUILD_IMAGE has {', '.join(installed)}: they must be of one minor version"
        )
    for name in NATIVE:
        importlib.import_module(name)


if __name__ == "__main__":
    check_base()
    compile_library()
    make_state_folder()
    remove_tools()
    import sqlite3

    print(f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}")
