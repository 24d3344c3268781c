"""Plays a recording back: the wire and the stage of a replay that must find no difference.

Proves the replay itself, and with `spoil` that it finds what is planted. Nothing here is a double:
it answers with the next recorded answer to the same call, and knows nothing else.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.arm.truth.plans import Plan
from tests.support.arm.truth.recordings import Recorded
from tests.support.arm.truth.replay import Reply

Spoil = Callable[[Recorded, int, dict[str, str], Any], Reply]
"""Changes an answer before it goes out."""


class Playback:
    """Answers from the recorded exchanges of one plan, each once and in order."""

    def __init__(self, plan: Plan, spoil: Spoil | None = None) -> None:
        self._left = list(plan.steps())
        self._spoil = spoil
        self.seeded: list[str] = []
        self.passed = 0.0
        self._made: dict[str, str | None] = {made.path: made.operation for made in plan.made}
        self._polls = {step.path.rpartition("/")[2]: step.path for step in self._left}

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        json: Any,
    ) -> Reply:
        if method == "PUT" and path in self._made:
            operation = self._made.pop(path)
            if operation is None:
                return 201, {}, {}
            return 201, {"Azure-AsyncOperation": f"https://arm{self._polls[operation]}"}, {}
        for position, recorded in enumerate(self._left):
            same = recorded.method == method and recorded.path == path
            if same and ("monitor" in recorded.query) == ("monitor" in query):
                del self._left[position]
                return self._answer(recorded)
        if method == "PUT":  # A part, or what a recorded answer shows, made beforehand.
            return 201, {}, {}
        if method == "GET":  # Settling what the recording did not poll.
            return 200, {}, {"status": "Succeeded"}
        return 500, {}, {"error": {"code": "NotRecorded", "message": f"{method} {path}"}}

    def _answer(self, recorded: Recorded) -> Reply:
        headers = dict(recorded.headers)
        body = copy.deepcopy(recorded.response)
        if self._spoil is not None:
            return self._spoil(recorded, recorded.status, headers, body)
        return recorded.status, headers, body

    def rewrite(self, text: str) -> str:
        return text

    async def seed(self, arm_id: str) -> None:
        self.seeded.append(arm_id)

    async def script(self, name: str, plan: Plan) -> None:
        """The recording goes wrong by itself."""

    async def pass_time(self, seconds: float) -> None:
        self.passed += seconds
