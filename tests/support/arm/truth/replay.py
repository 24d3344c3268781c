"""Sends recorded requests again, step by step, and compares what comes back.

Works on anything that answers HTTP: `Wire` sends, `Stage` puts up what cannot be made over the
wire. Operations are followed by the URLs that our side gave, as a client would. What is sent again,
and after what preparation, stands in `plans`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tests.support.arm.truth.headers import TELLING
from tests.support.arm.truth.holding import Outcome, Truth, outcome_of
from tests.support.arm.truth.plans import Plan
from tests.support.arm.truth.preparing import prepare
from tests.support.arm.truth.recordings import TRAFFIC, Recorded, lower_names, split_url
from tests.support.arm.truth.schemas import default_version
from tests.support.arm.truth.shapes import missing_or_extra, shape

Reply = tuple[int, Mapping[str, str], Any]

POLLS = 400
"""More than the longest recorded operation takes at five seconds a poll."""
PAUSE = 5.0
EVICTION = 60.0
"""What the recorder slept after an eviction, at least; nothing tells a client when it is over."""


class Wire(Protocol):
    """The client side: sends one request. A body that is text goes as a form."""

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        json: Any,
    ) -> Reply: ...


class Stage(Protocol):
    """The server side: what a test puts up before, and the passing of time."""

    def rewrite(self, text: str) -> str:
        """Say a recorded path or id in the names that this side knows."""

    async def seed(self, arm_id: str) -> None:
        """Put up what the double does not make over the wire: groups, subnets, images."""

    async def script(self, name: str, plan: Plan) -> None:
        """Arrange what goes wrong on purpose."""

    async def pass_time(self, seconds: float) -> None:
        """Let that many Azure seconds go by."""


@dataclass(frozen=True)
class Step:
    """What one recorded exchange came to on our side."""

    recorded: Recorded
    faults: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """Differences from this one recording that its kin leave open."""

    def __str__(self) -> str:
        recorded = self.recorded
        head = f"{recorded.where} {recorded.method} {recorded.route} {recorded.status}"
        return "\n".join((head, *(f"  {fault}" for fault in self.faults)))


@dataclass
class Replay:
    """Carries one plan out."""

    wire: Wire
    stage: Stage
    truth: Truth = field(default_factory=Truth)
    _ours: dict[str, str] = field(default_factory=dict)
    """Recorded operation (and form): the URL that our side gave for it."""
    _open: str | None = None
    """The operation that was begun and not yet seen to end."""

    async def run(self, plan: Plan) -> list[Step]:
        """Prepare, then send every step; nothing is raised for a difference."""
        await self._prepare(plan)
        done: list[Step] = []
        steps = plan.steps()
        for position, recorded in enumerate(steps):
            following = steps[position + 1] if position + 1 < len(steps) else None
            if _operation_of(recorded) is None:
                if recorded.index not in plan.at_once:
                    await self._settle()
                done.append(self._compare(plan, recorded, await self._send(recorded)))
                if recorded.route == "vm.simulate-eviction" and recorded.status == 204:
                    await self.stage.pass_time(EVICTION)
                continue
            url = self._ours.get(_operation_key(_url_of(recorded)))
            if url is None:
                done.append(Step(recorded, ("our side gave no URL for this operation",)))
                continue
            reply = await self._poll(url, recorded, following)
            # Ours may be the quicker one; the end is compared with the recorded end, then.
            if reply is None:
                done.append(Step(recorded, ()))
            else:
                done.append(self._compare(plan, recorded, reply))
        return done

    async def make(self, path: str, body: Any, operation: str | None = None) -> None:
        """Make a resource over the wire and wait for it; what it refers to comes first."""
        status, headers, answer = await self._request("PUT", path, {}, body)
        if status >= 300:
            raise AssertionError(f"could not make {path}: {status} {answer}")
        url = self._remember(lower_names(headers))
        if operation is None:
            await self._settle()
        elif url is not None:
            self._ours[operation] = url

    async def _prepare(self, plan: Plan) -> None:
        prepared = prepare(plan)
        for arm_id in prepared.seeds:
            await self.stage.seed(arm_id)
        for path, body in prepared.parts:
            await self.make(path, body)
        begun = False
        for path, body, operation in prepared.things:
            if operation is not None and plan.script:
                begun = True
                await self.stage.script(plan.script, plan)
            await self.make(path, body, operation)
        if plan.script and not begun:
            await self.stage.script(plan.script, plan)

    async def _send(self, recorded: Recorded) -> Reply:
        self._open = None
        reply = await self._request(
            recorded.method, recorded.path, recorded.query, recorded.request
        )
        ours = lower_names(reply[1])
        self._remember(ours)
        for name in ("azure-asyncoperation", "location"):
            if name in recorded.headers and name in ours:
                self._ours[_operation_key(recorded.headers[name])] = ours[name]
        return reply

    async def _request(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Reply:
        version = default_version(method, path)
        asked = dict(query)
        if version is not None:
            asked["api-version"] = version
        return await self.wire.send(
            method, self.stage.rewrite(path), asked, {}, _rewritten(body, self.stage)
        )

    def _remember(self, headers: Mapping[str, str]) -> str | None:
        self._open = headers.get("azure-asyncoperation", headers.get("location"))
        return self._open

    async def _settle(self) -> None:
        """Wait for the end of what was begun, as a client would, without comparing."""
        url, self._open = self._open, None
        for _attempt in range(POLLS if url is not None else 0):
            assert url is not None
            status, headers, body = await self._get(url)
            state = body.get("status") if isinstance(body, dict) else None
            if state != "InProgress" and status != 202:
                return
            await self.stage.pass_time(_pause(headers))

    async def _get(self, url: str) -> Reply:
        path, query = split_url(url)
        return await self.wire.send("GET", path, query, {}, None)

    async def _poll(self, url: str, recorded: Recorded, following: Recorded | None) -> Reply | None:
        """Poll once where the recording goes on polling, and to the end where it ends."""
        reply = await self._get(url)
        if _state((0, {}, recorded.response)) == "InProgress":
            goes_on = following is not None and _operation_of(following) == _operation_of(recorded)
            await self.stage.pass_time(_pause(reply[1]))
            return None if goes_on and _state(reply) != "InProgress" else reply
        for _attempt in range(POLLS):
            if _state(reply) != "InProgress" and reply[0] != 202:
                break
            await self.stage.pass_time(_pause(reply[1]))
            reply = await self._get(url)
        self._open = None
        return reply

    def _compare(self, plan: Plan, recorded: Recorded, reply: Reply) -> Step:
        status, headers, body = reply
        ours = replace(
            recorded, status=status, headers=lower_names(headers), response=body, fidelity="ours"
        )
        version = default_version(recorded.method, recorded.path)
        if version is not None:
            ours = replace(ours, query={**recorded.query, "api-version": version})
        if status != recorded.status:
            told = f"status {status} where {recorded.status} was recorded: {str(body)[:200]}"
            return Step(recorded, (told,))
        faults = [
            fault
            for fault in self.truth.answer_faults(ours)
            if not any(place in fault for place in plan.excused)
        ]
        theirs, got = _code(recorded.response), _code(body)
        if theirs != got:
            faults.append(f"code or state {got} where {theirs} was recorded")
        if outcome_of(ours) != outcome_of(recorded) and theirs == got:
            faults.append(f"went as {outcome_of(ours)} where {outcome_of(recorded)} was recorded")
        return Step(recorded, tuple(dict.fromkeys(faults)), tuple(_notes(ours, recorded)))


def _notes(ours: Recorded, recorded: Recorded) -> list[str]:
    notes = [
        str(difference)
        for difference in missing_or_extra(
            ours.response, shape(recorded.response), known=lambda _place: True
        )
    ]
    if recorded.fidelity == TRAFFIC:
        for name in sorted(TELLING):
            if (name in ours.headers) != (name in recorded.headers):
                side = "only ours" if name in ours.headers else "only the recording"
                notes.append(f"header {name}: {side} has it")
    return notes


def report(steps: Sequence[Step]) -> str:
    """The faults of a replay, one paragraph per step that has any."""
    return "\n".join(str(step) for step in steps if step.faults)


def outcomes(steps: Sequence[Step]) -> set[Outcome]:
    """The outcomes that were compared."""
    return {outcome_of(step.recorded) for step in steps}


def _url_of(recorded: Recorded) -> str:
    monitor = "?monitor=true" if "monitor" in recorded.query else ""
    return recorded.path + monitor


def _operation_of(recorded: Recorded) -> str | None:
    """The name of the operation that a recorded poll asks about."""
    if recorded.method == "GET" and recorded.route.endswith((".operation", ".result")):
        return recorded.path.rpartition("/")[2]
    return None


def _operation_key(url: str) -> str:
    """Tells operation URLs apart: by name, and by the form that asks for the result."""
    path, query = split_url(url)
    name = path.rpartition("/")[2]
    results = "operationresults" in path.lower() or "monitor" in query
    return f"{name} result" if results else name


def _rewritten(value: Any, stage: Stage) -> Any:
    if isinstance(value, str):
        return stage.rewrite(value)
    if isinstance(value, Mapping):
        return {key: _rewritten(inner, stage) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rewritten(inner, stage) for inner in value]
    return value


def _pause(headers: Mapping[str, str]) -> float:
    text = lower_names(headers).get("retry-after", "")
    return float(text) if text.isdecimal() and int(text) > 0 else PAUSE


def _state(reply: Reply) -> str | None:
    return reply[2].get("status") if isinstance(reply[2], dict) else None


def _code(body: Any) -> str | None:
    if not isinstance(body, dict):
        return None
    error = body.get("error", body.get("Error", {}))
    code = error.get("code", error.get("Code")) if isinstance(error, dict) else error
    state = body.get("status")
    return code or (state if isinstance(state, str) else None)
