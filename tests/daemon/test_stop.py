"""How the daemon ends."""

import asyncio
import logging
import os
import signal

import pytest

from bigfleet_azure.daemon import app
from bigfleet_azure.daemon.settings import resolve
from bigfleet_azure.kit.clock import SystemClock
from bigfleet_azure.rpc.minimum_tls import require_tls13
from bigfleet_azure.store.memory import MemoryStore


class HangingStore(MemoryStore):
    """A store whose disk does not answer any more when it is closed."""

    async def close(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue


class CutOffError(Exception):
    """Stands for the end of the process."""


@pytest.mark.behaviour(92)
async def test_a_disk_that_hangs_does_not_keep_the_daemon_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes: list[int] = []

    def cut_off(code: int) -> None:
        codes.append(code)
        raise CutOffError

    monkeypatch.setenv("GRPC_SSL_CIPHER_SUITES", "")
    require_tls13()
    monkeypatch.setattr(app, "open_store", lambda *_: HangingStore(SystemClock()))
    monkeypatch.setattr(app, "SHUTDOWN_LIMIT_SECONDS", 0.2)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    monkeypatch.setattr(os, "_exit", cut_off)
    flags = ["--use-fake-backend", "--addr=127.0.0.1:0", "--metrics-addr=", "--fake-seed=1"]
    daemon = app.Daemon(resolve(flags, {}, lambda _: b""), SystemClock())
    serving = asyncio.ensure_future(daemon.serve())
    while not daemon.served:  # noqa: ASYNC110 - it tells nobody, and lives in real time
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(CutOffError):
        await serving
    assert codes == [1]
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.get_coro().close()
