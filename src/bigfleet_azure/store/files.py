"""The state file as a file: where it may lie, what it looks like from outside, who may use it.

Everything here runs before SQLite has the file open. Afterwards nobody may open that path outside
SQLite: closing such a descriptor would drop SQLite's own locks on it.
"""

import fcntl
import os
import re
from pathlib import Path

from bigfleet_azure.store.base import StoreUnusable

_MAGIC = b"SQLite format 3\0"
_MOUNTS = Path("/proc/self/mountinfo")

_NETWORK = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs",
        "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb2", "smb3",
        "smbfs",
    }
)  # fmt: skip
"""File systems whose memory maps or locks are not shared by all who mount them, which the
write-ahead log needs (https://sqlite.org/wal.html, "all processes must be on the same host")."""


def wal_of(path: Path) -> Path:
    """SQLite's write-ahead log of `path`."""
    return path.with_name(f"{path.name}-wal")


def key_beside(path: Path) -> Path:
    """Where the key that seals blobs is made when none was given."""
    return path.with_name(f"{path.name}.key")


def check_place(path: Path) -> None:
    """Refuse a place that cannot hold a state file.

    Args:
        path: absolute, without symbolic links.

    Raises:
        StoreUnusable: with what to do about it.
    """
    folder = path.parent
    if not folder.is_dir():
        raise StoreUnusable(f"{path}: the directory {folder} does not exist; create it first")
    if path.is_dir():
        raise StoreUnusable(f"{path} is a directory; --state names a file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreUnusable(
            f"{path}: the directory {folder} is not writable by this user; SQLite keeps its log "
            "and its locks beside the file"
        )
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise StoreUnusable(f"{path} cannot be read and written by this user")
    kind = network_file_system(folder, _mounts())
    if kind:
        raise StoreUnusable(
            f"{path} lies on a network file system ({kind}), which cannot hold SQLite's "
            "write-ahead log safely; give --state a path on a local disk"
        )


def _mounts() -> str:
    """The kernel's list of mounts; empty where there is none (macOS)."""
    try:
        return _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return ""


def network_file_system(folder: Path, mountinfo: str) -> str:
    """The type of the network file system that `folder` lies on, empty when it is local.

    Args:
        folder: absolute, without symbolic links.
        mountinfo: text of /proc/self/mountinfo (proc_pid_mountinfo(5)).
    """
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 5 or not source:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
        # A later mount on the same point covers the earlier one.
        if folder.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), source.split(" ")[0]
    return kind if kind in _NETWORK else ""


def is_new(path: Path) -> bool:
    """Whether a state file is still to be made at `path`; False when one is there.

    Raises:
        StoreUnusable: what is there is something else, or what is left of a state file.
    """
    size = path.stat().st_size if path.exists() else None
    if size:
        _refuse_foreign(path)
        return False
    wal = wal_of(path)
    if wal.exists() and wal.stat().st_size:
        raise StoreUnusable(
            f"{path} is {'missing' if size is None else 'empty'}, yet its log {wal} is not: put "
            "the state file back, or move the log away to start without what it held"
        )
    # With the key of an earlier life beside it, a missing or empty file is what a failing disk or
    # a lost volume left, and starting from nothing would forget machines that run. Our own files
    # are renamed into place whole, and before their key. Else an empty file is what mktemp makes.
    if key_beside(path).exists():
        raise StoreUnusable(
            f"{path} is {'missing' if size is None else 'empty'}, yet {key_beside(path)} shows "
            "that it was in use: restore it from a backup (`bigfleet-azure state backup` makes "
            "them), or remove the key too to start without what it held"
        )
    return True


def _refuse_foreign(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
    if start == _MAGIC:
        return
    if start.lstrip()[:1] in (b"{", b"["):
        raise StoreUnusable(
            f"{path} is a JSON state file of the Go provider, which no daemon of this program runs "
            "on; keep it and give --state another path (`bigfleet-azure state import` makes a new "
            "state file with its fence marks)"
        )
    raise StoreUnusable(
        f"{path} is not a state file (no SQLite header); if it was one, restore it from a "
        "backup, else give --state another path"
    )


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Lock:
    """Exclusive use of a state file, by a lock on a file of its own beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock; the kernel gives it back when the process ends, however it ends.

        Raises:
            StoreUnusable: another process has it.
        """
        name = self._path.with_name(f"{self._path.name}.lock")
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreUnusable(f"cannot open the lock file {name}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise StoreUnusable(
                    f"{self._path} is in use by another process, which holds {name}; one state "
                    "file serves one daemon"
                ) from error
            raise StoreUnusable(f"cannot lock {name}: {error.strerror}") from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back. The file stays: removing it would race with the next owner."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
