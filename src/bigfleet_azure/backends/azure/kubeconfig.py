"""Kubeconfig files: which one belongs to a cluster, whether it changed, and how it is opened.

Programs that a kubeconfig names (`exec`) are never run: whoever may write the file would run them
on this host, with its identity in Azure. Nothing is sent from here.
"""

import base64
import binascii
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bigfleet_azure.domain.limits import names_a_file

Json = dict[str, Any]

Stamp = tuple[tuple[int, int, int] | None, ...]
"""What `stat` says of each file, links followed; None for one that is not there."""

_PROGRAMS = ("exec", "auth-provider")

_IN_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key")}
"""Keys that name a file, or with `-data` hold what would be in it."""


class Unusable(Exception):
    """A kubeconfig cannot be used; the text says why and holds nothing secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubeconfig:
    """A kubeconfig that was read.

    Attributes:
        document: its content; certificates are in files, and tokens are in it.
        files: the file itself and all that it refers to.
        stamp: of these, from before they were read.
    """

    document: Json
    files: tuple[Path, ...]
    stamp: Stamp


def name_fault(cluster: str) -> str:
    """Why `cluster` can be no file's name; "" when it can."""
    if not names_a_file(cluster):
        return f"the cluster id {cluster!r} is no plain file name, so no kubeconfig can be its own"
    return ""


def stamp(files: Iterable[Path]) -> Stamp:
    """How the files are now; a mounted Secret that is swapped as a whole changes it too."""
    return tuple(_stat(path) for path in files)


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def read(path: Path, scratch: Path) -> Kubeconfig:
    """Read the kubeconfig at `path`, writing certificates that it holds into `scratch`.

    Raises:
        Unusable: it is missing, broken, or wants a program to be run.
    """
    before = stamp((path,))
    document = _document(path)
    context = _named(document, "context", document.get("current-context"))
    cluster = _named(document, "cluster", context.get("cluster"))
    user = _named(document, "user", context.get("user"))
    for program in _PROGRAMS:
        if program in user:
            raise Unusable(
                f"its user is let in by `{program}`, and no program is run for a kubeconfig; use a "
                "token, a tokenFile or a client certificate"
            )
    if not isinstance(cluster.get("server"), str):
        raise Unusable("its cluster has no server")
    files = [path.parent / part[key] for part, key in _references(cluster, user)]
    after = stamp(files)
    if "tokenFile" in user:
        user["token"] = _text(path.parent / user.pop("tokenFile")).strip()
    for kind, part in (("cluster", cluster), ("user", user)):
        for key in _IN_FILES[kind]:
            _unpack(part, key, scratch)
    return Kubeconfig(document=document, files=(path, *files), stamp=before + after)


def _document(path: Path) -> Json:
    try:
        document = yaml.safe_load(_text(path))
    except yaml.MarkedYAMLError as error:
        # The error's own text quotes the line, which may hold a token.
        line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise Unusable(f"it is no YAML{line}") from None
    except yaml.YAMLError:
        raise Unusable("it is no YAML") from None
    if not isinstance(document, dict):
        raise Unusable("it is no kubeconfig: it has no current-context")
    return document


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None
    except ValueError:
        raise Unusable(f"{path} is not UTF-8") from None


def _named(document: Json, kind: str, name: object) -> Json:
    """The part of that kind and name, such as the user `root` among `users`."""
    if not name:
        raise Unusable(f"it names no {'current-context' if kind == 'context' else kind}")
    entries = document.get(f"{kind}s")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            part = entry.get(kind)
            if isinstance(part, dict):
                return part
    raise Unusable(f"it has no {kind} called {name}")


def _references(cluster: Json, user: Json) -> Iterable[tuple[Json, str]]:
    for part in (cluster, user):
        for key in ("tokenFile", *_IN_FILES["cluster"], *_IN_FILES["user"]):
            if isinstance(part.get(key), str) and f"{key}-data" not in part:
                yield part, key


def _unpack(part: Json, key: str, scratch: Path) -> None:
    data = part.pop(f"{key}-data", None)
    if data is None:
        return
    try:
        content = base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError, TypeError):
        raise Unusable(f"its {key}-data is not base64") from None
    target = scratch / key
    target.touch(mode=0o600)
    target.write_bytes(content)
    part[key] = str(target)
