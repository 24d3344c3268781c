"""The image, built by buildah from the real Dockerfile, and programs run in it.

There is no container engine: a program gets a mount namespace of its own in which the image's files
are mounted read-only, and changes its root into them as the image's user, without privileges.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts import build_kubernetes, stand_in_images
from scripts.stand_in_images import buildah
from tests.support.tools import ROOT, require_tool

STATE_FOLDER = "/var/lib/bigfleet-azure"

PLATFORMS = {
    "amd64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "arm64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
}
"""Wheel platforms that Debian 13's C library (2.41) runs."""

GROUPS = ("image", "runtime")
"""Requirement files that the build installs."""

WHEELS = "/var/cache"
"""Where the build finds the wheels: a folder that both base images have, or it would stay."""

PIP_CONFIGURATION = f"[global]\nno-index = true\nfind-links = {WHEELS}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image.

    Attributes:
        root: its files, in a container of their own.
        config: as the OCI image specification has it: User, Env, Entrypoint, Labels, ...
        size: of all its files, in bytes.
    """

    root: Path
    config: dict[str, Any]
    size: int

    def command(
        self, *entry: str, binds: Mapping[Path, str] | None = None, user: str = ""
    ) -> list[str]:
        """What starts `entry`, by default the image's own entry point, in the image.

        Args:
            entry: program and its first arguments, instead of the entry point.
            binds: folders and files outside, and where they appear inside, writable.
            user: as UID:GID, instead of the image's.
        """
        mounts = [f"mount --bind {self._quoted()} {self._quoted()}"]
        mounts += [
            f"mount --bind {shlex.quote(str(outside))} {self._quoted(inside)}"
            for outside, inside in (binds or {}).items()
        ]
        mounts += [
            f"mount -t proc proc {self._quoted('/proc')}",
            f"mount --rbind /dev {self._quoted('/dev')}",
            f"mount -o remount,bind,ro {self._quoted()}",
        ]
        start = [
            *("env", "-i", *self.config["Env"], "setpriv", "--no-new-privs"),
            *("chroot", "--groups=", f"--userspec={user or self.config['User']}", str(self.root)),
            *(entry or self.config["Entrypoint"]),
        ]
        script = f'{" && ".join(mounts)} && exec {shlex.join(start)} "$@"'
        return ["unshare", "--mount", "sh", "-c", script, "sh"]

    def run(
        self, *entry: str, binds: Mapping[Path, str] | None = None, user: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the image to its end."""
        return subprocess.run(
            self.command(*entry, binds=binds, user=user),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def python(self, code: str) -> str:
        """Output of a piece of Python in the image."""
        done = self.run("/opt/bigfleet-azure/bin/python", "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _quoted(self, inside: str = "") -> str:
        return shlex.quote(f"{self.root}{inside}")


def require_builder() -> None:
    """Skip, or fail, the calling test where images cannot be built."""
    for tool in ("buildah", "debootstrap", "apt-get", "setpriv"):
        require_tool(tool)
    if os.geteuid() != 0:
        why = "images are built and run as root, in a chroot"
        if os.environ.get("REQUIRE_TOOLS") == "1":
            pytest.fail(why)
        pytest.skip(why)


def pip_for_image(verb: str, architecture: str, group: str, *options: str) -> None:
    """Run `pip VERB` on a requirements file, choosing as the image's Python would.

    Raises:
        subprocess.CalledProcessError: a package has no wheel for it.
    """
    chosen = [f"--platform={name}" for name in (*PLATFORMS[architecture], "any")]
    chosen += ["--python-version=3.13", "--implementation=cp"]
    chosen += ["--abi=cp313", "--abi=abi3", "--abi=none"]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", verb, "--quiet"]
    command += ["--require-hashes", "--only-binary=:all:", "--no-deps", *chosen, *options]
    subprocess.run([*command, "-r", f"requirements/{group}.txt"], cwd=ROOT, check=True)


def wheels() -> Path:
    """Folder with the wheels that the build installs; fetched when the locks have changed."""
    locks = [ROOT / "requirements" / f"{group}.txt" for group in GROUPS]
    state = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()[:12]
    target = build_kubernetes.folder() / f"wheels-{state}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="wheels-") as fetched:
            for group in GROUPS:
                pip_for_image("download", "amd64", group, f"--dest={fetched}/wheels")
            Path(fetched, "wheels").replace(target)
    return target


@contextmanager
def built(folder: Path) -> Iterator[Image]:
    """Build the Dockerfile over stand-in base images, without a network."""
    stand_in_images.main()
    configuration = folder / "pip.conf"
    configuration.write_text(PIP_CONFIGURATION, encoding="utf-8")
    options = (f"--volume={wheels()}:{WHEELS}:ro", f"--secret=id=pip,src={configuration}")
    with image_of(ROOT / "Dockerfile", *options) as name, files_of(name) as root:
        facts = json.loads(buildah("inspect", "--type=image", name))["OCIv1"]
        yield Image(
            root=root,
            config=facts["config"],
            size=sum(path.stat().st_size for path in root.rglob("*") if not path.is_symlink()),
        )


@contextmanager
def image_of(dockerfile: Path, *options: str) -> Iterator[str]:
    """Build a Dockerfile with the repository as its context, and give the image's name."""
    name = f"localhost/bigfleet-azure-test-{os.getpid()}-{dockerfile.name.lower()}"
    fixed = ("--isolation=chroot", "--pull-never", "--network=host", f"--tag={name}")
    command = stand_in_images.command("build", *fixed, *options, f"--file={dockerfile}", str(ROOT))
    done = subprocess.run(
        ["unshare", "--net", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    try:
        yield name
    finally:
        buildah("rmi", name)


@contextmanager
def files_of(name: str) -> Iterator[Path]:
    """Root of a container of the image."""
    container = buildah("from", "--pull-never", name)
    try:
        yield Path(buildah("mount", container))
    finally:
        buildah("rm", container)
