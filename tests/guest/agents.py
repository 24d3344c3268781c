"""The eviction agent as a real process."""

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.guest.serving import until
from tests.support.tools import ROOT, require_tool

PROGRAM = ROOT / "deploy" / "agent" / "eviction-agent"
TOKEN = "v1.key7.Zm9yLXRoaXMtVk0tb25seQ"
ROUND_SECONDS = 0.005
"""How long the agent's second takes here."""

_ROUND = "sleep "

NOBODY = "http://127.0.0.1:9"
"""A proxy that nobody answers for."""


class Agent:
    """A running agent.

    Attributes:
        drained: the hook makes this file.
        calls: a line for each start of curl, with arguments and environment, and for each second
            that passed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log = folder / "log"
        self.calls = folder / "calls"
        self.drained = folder / "drained"
        self.token = folder / "credentials" / "callback-token"
        self.token.parent.mkdir()
        self.token.write_text(TOKEN + "\n")
        self._tools = folder / "tools"
        self._tools.mkdir()
        self._stand_in(
            "sleep",
            f'echo "{_ROUND}$1" >>"{self.calls}"; exec {shutil.which("sleep")} {ROUND_SECONDS}',
        )
        curl = require_tool("curl")
        self._stand_in(
            "curl",
            f'{{ echo "$@" $(env) | tr "\\n" " "; echo; }} >>"{self.calls}"\nexec {curl} "$@"',
        )
        (folder / ".curlrc").write_text(f'proxy = "{NOBODY}"\nrequest = "PUT"\n')

    def words(self) -> str:
        """What it logged."""
        return self.log.read_text() if self.log.exists() else ""

    def pauses(self, text: str) -> list[int]:
        """Seconds that passed between the calls of curl with `text` in them."""
        lines = self.calls.read_text().splitlines()
        times, now = [], 0
        for line in lines:
            if line.startswith(_ROUND):
                now += int(line.removeprefix(_ROUND))
            elif text in line:
                times.append(now)
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    async def says(self, text: str) -> None:
        await until(lambda: text in self.words(), f"the agent says {text!r}: {self.words()}")

    @asynccontextmanager
    async def running(self, **settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The agent with these settings, until the block ends."""
        program = self._folder / "eviction-agent"
        text = PROGRAM.read_text()
        assert text.count("/run/bigfleet/drained") == 1
        program.write_text(text.replace("/run/bigfleet/drained", str(self.drained)))
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                str(require_tool("bash")),
                program,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(settings),
                cwd=self._folder,
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            self._check_secrecy()

    def _environment(self, settings: dict[str, str]) -> dict[str, str]:
        return {
            "PATH": f"{self._tools}:{os.environ['PATH']}",
            "HOME": str(self._folder),
            "HOSTNAME": settings.get("BIGFLEET_MACHINE_ID", "vm-spot"),
            "CREDENTIALS_DIRECTORY": str(self.token.parent),
            **dict.fromkeys(("http_proxy", "HTTPS_PROXY", "ALL_PROXY"), NOBODY),
            **settings,
        }

    def _check_secrecy(self) -> None:
        calls = self.calls.read_text() if self.calls.exists() else ""
        assert TOKEN not in self.words()
        assert TOKEN not in calls

    def _stand_in(self, name: str, body: str) -> None:
        path = self._tools / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
