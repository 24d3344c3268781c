"""What machines are given to call back with, and the files that it depends on.

The keys are read again when their file changes; a faulty file leaves the last good keys in force.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bigfleet_azure.daemon.contradictions import Faults, Given
from bigfleet_azure.daemon.settings import Read
from bigfleet_azure.domain import callback
from bigfleet_azure.domain.callback import Key

logger = logging.getLogger(__name__)

KEYS_CONDITION = "callback-keys"


class CallbackKeys:
    """The signing keys of a file.

    Args:
        path: the file; None for no keys.
        report: told what is wrong with it, and None when it is good again.

    Raises:
        ValueError, OSError: it cannot be used.
    """

    def __init__(self, path: Path | None, report: Callable[[str | None], None]) -> None:
        self._path = path
        self._report = report
        self._content = b""
        self._keys: tuple[Key, ...] = ()
        if path is not None:
            self._content = path.read_bytes()
            self._keys = callback.read_keys(self._content)

    def current(self) -> Sequence[Key]:
        """The keys in force, the newest first."""
        return self._keys

    def token(self, machine_id: str, operation_id: str) -> str:
        """What the machine that `operation_id` makes may speak for itself with; "" without keys."""
        return callback.sign(self._keys[0], machine_id, operation_id) if self._keys else ""

    def check(self) -> None:
        """Read the file again if it changed."""
        if self._path is None:
            return
        try:
            content = self._path.read_bytes()
            if content != self._content:
                self._keys = callback.read_keys(content)
                self._content = content
                logger.info("callback keys loaded again", extra={"keys": len(self._keys)})
        except OSError as error:
            self._report(f"--callback-key-file={self._path} cannot be read: {error.strerror}")
        except ValueError as error:
            self._report(f"--callback-key-file={self._path} {error}; the last good keys stay")
        else:
            self._report(None)


def callback_faults(
    values: Mapping[str, Any], given: Mapping[str, Given], read: Read, faults: Faults
) -> None:
    """What is wrong with the settings of callbacks, file included."""
    path = values["callback_key_file"]
    if path is not None:
        try:
            callback.read_keys(read(str(path)))
        except OSError as error:
            faults.add(f"{given['callback-key-file'].shown} cannot be read: {error.strerror}")
        except ValueError as error:
            faults.add(f"{given['callback-key-file'].shown} {error}")
    pair = [n for n in ("callback-tls-cert", "callback-tls-key") if n in given and given[n].text]
    if len(pair) == 1:
        other = "callback-tls-key" if pair[0].endswith("cert") else "callback-tls-cert"
        faults.add(f"{given[pair[0]].shown} cannot be used without --{other}")
    if values["callback_addr"] is None:
        for name in pair:
            faults.add(f"{given[name].shown} has no use without --callback-addr")
    elif path is None and values["eviction_token"] is None and "callback-key-file" not in given:
        faults.add(
            f"{given['callback-addr'].shown} has no use without --callback-key-file or "
            "--eviction-token: no notice could be accepted"
        )
