"""Make stand-ins for the base images of the Dockerfile, where no registry can be asked for them.

Debian 13 is laid down once by debootstrap and committed by buildah under the names that the
Dockerfile uses: the whole of it, with pip, for the build stage, and for the final stage only what
the distroless image holds. They stay in a store under the cache folder of
`scripts.build_kubernetes`, so that a second call costs nothing. Run it as root, as
`python -m scripts.stand_in_images`.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts import build_kubernetes

SUITE = "trixie"
BUILD_IMAGE = "docker.io/library/python:3.13-slim-trixie"
BASE_IMAGE = "gcr.io/distroless/python3-debian13:nonroot"

VERSION = 1
"""Counted up when something below changes what the images hold."""

USER = 65532
"""The user `nonroot` of distroless images."""

PACKAGES = (
    "base-files",
    "ca-certificates",
    "libbz2-1.0",
    "libc6",
    "libcrypt1",
    "libdb5.3t64",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libncursesw6",
    "libpython3.13-minimal",
    "libpython3.13-stdlib",
    "libreadline8t64",
    "libsqlite3-0",
    "libssl3t64",
    "libstdc++6",
    "libtinfo6",
    "libuuid1",
    "libzstd1",
    "media-types",
    "netbase",
    "python3.13-minimal",
    "tzdata",
    "zlib1g",
)
"""Of the Debian packages that the distroless image is made of, those that the daemon can need."""

ACCOUNTS = f"""root:x:0:0:root:/root:/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin
nonroot:x:{USER}:{USER}:nonroot:/home/nonroot:/sbin/nologin
"""

BASE_CONFIGURATION = (
    f"--user={USER}",
    "--workingdir=/home/nonroot",
    '--entrypoint=["/usr/bin/python3.13"]',
    "--env=LANG=C.UTF-8",
    "--env=SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
)

KEPT_FILES = ("etc/ssl/certs/ca-certificates.crt", "usr/bin/dash")
"""What the base gets from the laid down Debian: the certificates that a package's script has put
together, and a shell, which no base is known to need, for the build to take out."""


def store() -> Path:
    """Folder of the image store."""
    return build_kubernetes.folder() / f"images-{SUITE}-{VERSION}"


def command(*arguments: str) -> list[str]:
    """A buildah command on the store."""
    folders = (f"--root={store()}", f"--runroot={store()}.run")
    return ["buildah", "--storage-driver=vfs", *folders, *arguments]


def buildah(*arguments: str) -> str:
    """Output of a buildah command on the store.

    Raises:
        subprocess.CalledProcessError: it failed; it has said why on the terminal.
    """
    done = subprocess.run(command(*arguments), check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def mirror() -> list[str]:
    """Address of the Debian mirror in this machine's package sources.

    Empty where it has none (Ubuntu): debootstrap then takes its own.
    """
    chosen = ["Created-By: Packages", "Origin: Debian", "Component: main"]
    asked = ["apt-get", "indextargets", "--format", "$(SITE)", *chosen]
    done = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()[:1]


def missing() -> list[str]:
    """Names of the images that are not in the store yet."""
    if not store().is_dir():
        return [BUILD_IMAGE, BASE_IMAGE]
    images = json.loads(buildah("images", "--json"))
    known = [name for image in images for name in image["names"] or ()]
    return [name for name in (BUILD_IMAGE, BASE_IMAGE) if name not in known]


@contextmanager
def new_image(name: str, *configuration: str) -> Iterator[Path]:
    """Give the root of an empty image to fill, and commit it as `name` at the end."""
    container = buildah("from", "scratch")
    try:
        yield Path(buildah("mount", container))
        buildah("config", *configuration, container)
        buildah("commit", "--quiet", container, name)
    finally:
        buildah("rm", container)


def fill_build_image(root: Path) -> Path:
    """Lay down Debian with Python and pip; returns the folder of its packages."""
    options = ("--variant=minbase", "--include=python3-venv,ca-certificates")
    laying = ["debootstrap", *options, SUITE, str(root), *mirror()]
    subprocess.run(laying, check=True, stdout=subprocess.DEVNULL)
    return root / "var/cache/apt/archives"


def fill_base_image(root: Path, kept: Path) -> None:
    """Unpack what the distroless image holds: packages without their scripts, and few files."""
    for name in PACKAGES:
        [archive] = kept.glob(f"{name}_*.deb")
        unpacking = ["dpkg-deb", "-x", str(archive), str(root)]
        subprocess.run(unpacking, check=True)
    for name in ("python", "python3"):
        (root / "usr/bin" / name).symlink_to("python3.13")
    (root / "etc/passwd").write_text(ACCOUNTS, encoding="utf-8")
    home = root / "home/nonroot"
    home.mkdir(parents=True, mode=0o700)
    shutil.chown(home, USER, USER)
    for name in KEPT_FILES:
        shutil.copy(kept / Path(name).name, root / name)


def build() -> None:
    """Build both images."""
    store().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store().parent, prefix="debian-") as folder:
        kept = Path(folder)
        with new_image(BUILD_IMAGE, "--cmd=python3") as root:
            for archive in fill_build_image(root).glob("*.deb"):
                shutil.move(archive, kept)
            for name in KEPT_FILES:
                shutil.copy(root / name, kept)
        with new_image(BASE_IMAGE, *BASE_CONFIGURATION) as root:
            fill_base_image(root, kept)


def main() -> int:
    """Build what is not there yet."""
    absent = [tool for tool in ("buildah", "debootstrap") if shutil.which(tool) is None]
    if absent:
        print(f"SKIPPED: {' and '.join(absent)} not installed, no image was made", file=sys.stderr)
        return 0
    if missing():
        print(f"Laying down Debian {SUITE} for {BUILD_IMAGE} and {BASE_IMAGE} ...", flush=True)
        build()
    print(f"{BUILD_IMAGE}\n{BASE_IMAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
