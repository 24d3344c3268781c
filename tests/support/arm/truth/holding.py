"""`Truth`: holds any exchange, one by one, to the descriptions and to the recordings.

For the double's own record of what was said, whoever caused it: the backend under test, the SDK, or
the replay. Sending recorded requests again is done in `replay`.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tests.support.arm.truth import headers
from tests.support.arm.truth.recordings import CAPTURED, TRAFFIC, Recorded, load, lower_names
from tests.support.arm.truth.routes import UNSPOKEN, classify
from tests.support.arm.truth.schemas import Validator
from tests.support.arm.truth.shapes import Shape, missing_or_extra, shape
from tests.support.arm.truth.walker import UNKNOWN


class Said(Protocol):
    """What is read of an exchange; the double's `Exchange` has it, and so has `Recorded`."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def query(self) -> Mapping[str, str]: ...
    @property
    def request(self) -> Any: ...
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def response(self) -> Any: ...


@dataclass(frozen=True)
class Outcome:
    """What makes two answers comparable: the same call, status, and way of going."""

    route: str
    status: int
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.route} {self.status} {self.detail}".strip()


def outcome_of(said: Said) -> Outcome:
    """The outcome of an exchange: operations by their state, errors by who answered."""
    route = classify(said.method, said.path)
    body = said.response if isinstance(said.response, dict) else {}
    detail = ""
    if said.status >= 400:
        detail = lower_names(said.headers).get("x-ms-failure-cause", "provider")
    elif route.endswith(".operation"):
        monitored = "monitor" if "monitor" in said.query else ""
        detail = monitored or str(body.get("status", ""))
    elif route == "graph.query":
        detail = "table" if isinstance(body.get("data"), dict) else "objects"
    elif said.query.get("statusOnly", "").lower() == "true":
        detail = "status only"
    elif "$expand" in said.query:
        detail = said.query["$expand"].lower()
    state = body["properties"].get("provisioningState") if "properties" in body else None
    if said.method == "GET" and state not in (None, "Succeeded") and not route.endswith("tion"):
        detail = str(state).lower()  # Nothing that was still on its way was read on record.
    return Outcome(route, said.status, detail)


class Truth:
    """Everything known, asked about one exchange at a time."""

    def __init__(self, recordings: Iterable[Recorded] | None = None) -> None:
        self.validator = Validator()
        self._known: dict[Outcome, list[Recorded]] = {}
        self._errors: dict[tuple[str, str], list[Recorded]] = {}
        for recorded in load() if recordings is None else recordings:
            if recorded.fidelity not in (TRAFFIC, CAPTURED):
                continue
            outcome = outcome_of(recorded)
            if outcome.status >= 400:
                self._errors.setdefault(_teller(recorded), []).append(recorded)
            elif outcome.route != UNSPOKEN:
                self._known.setdefault(outcome, []).append(recorded)
        self.shape_of = functools.cache(self._shape_of)

    def recordings_of(self, said: Said) -> list[Recorded]:
        """The recordings that an answer is compared with.

        Errors look alike whatever was asked: they are compared with all that the same side told,
        and be it about resources that the double does not know.
        """
        if said.status >= 400:
            return self._errors.get(_teller(said), [])
        return self._known.get(outcome_of(said), [])

    def faults(self, said: Said) -> list[str]:
        """Everything wrong with an exchange, each as a sentence that names its place."""
        return [*self.request_faults(said), *self.answer_faults(said)]

    def request_faults(self, said: Said) -> Iterator[str]:
        """Hold what was sent to the descriptions; only calls that were not refused as malformed."""
        verdicts = (
            self.validator.query(said.method, said.path, said.query),
            self.validator.request(said.method, said.path, said.query, said.request),
        )
        for verdict in verdicts:
            for fault in verdict.faults:
                yield f"request {verdict.route}: {fault}"

    def answer_faults(self, said: Said, *, typed: bool = True) -> Iterator[str]:
        """Hold what was answered to the descriptions and to the recordings.

        Without `typed` the record was made before the transport said what type the body is of.
        """
        if said.status == 0:
            return  # The connection was dropped; there is no answer.
        outcome = outcome_of(said)
        answer = self.validator.response(
            said.method, said.path, said.query, said.status, said.response
        )
        for fault in answer.faults:
            yield f"answer {outcome} against {answer.source}: {fault}"
        if said.status >= 400:
            yield from self._error_faults(said, typed=typed)
            return
        known = self.recordings_of(said)
        if not known:
            return
        about = f"answer {outcome} against {len(known)} recordings"
        for difference in missing_or_extra(
            _settled(said.response),
            self.shape_of(outcome),
            known=lambda place: answer.source is not None and not _unknown(answer.faults, place),
        ):
            yield f"{about}: {difference}"
        # No body need not say of what type it is.
        unseen = frozenset[str]() if typed and said.response else frozenset({"content-type"})
        traffic = [recorded.headers for recorded in known if recorded.fidelity == TRAFFIC]
        for difference in headers.compare(said.headers, traffic, unseen=unseen):
            yield f"{about}: {difference}"

    def _error_faults(self, said: Said, *, typed: bool) -> Iterator[str]:
        """Errors look alike whatever was asked; only their codes and texts differ."""
        known = self.recordings_of(said)
        body = said.response
        if not known or not isinstance(body, dict) or not {"error", "Error"} & body.keys():
            return  # Bare errors are on record as quotes only, which the validator has held.
        about = f"answer {outcome_of(said)} against {len(known)} errors"
        for difference in missing_or_extra(
            said.response, shape(*(each.response for each in known)), known=lambda _place: True
        ):
            yield f"{about}: {difference}"
        unseen = frozenset[str]() if typed else frozenset({"content-type"})
        if classify(said.method, said.path).partition(".")[0] not in {"vm", "extension"}:
            unseen |= {headers.BUCKETS}
        ours = {
            name: text
            for name, text in lower_names(said.headers).items()
            # Which bucket was charged depends on the call, and a throttle says how long to wait.
            if name != headers.BUCKETS and not (name == "retry-after" and said.status in _WAITS)
        }
        if headers.BUCKETS in lower_names(said.headers):
            unseen |= {headers.BUCKETS}
        for difference in headers.compare(
            ours, [each.headers for each in known if each.fidelity == TRAFFIC], unseen=unseen
        ):
            yield f"{about}: {difference}"

    def hold(self, exchanges: Iterable[Said]) -> list[str]:
        """Everything wrong with the record of a server, each thing once."""
        found: dict[str, int] = {}
        for said in exchanges:
            for fault in (*self.request_faults(said), *self.answer_faults(said, typed=False)):
                found[fault] = found.get(fault, 0) + 1
        return [f"{fault} ({count} times)" for fault, count in found.items()]

    def assert_held(self, exchanges: Iterable[Said]) -> None:
        """Fail with everything that `hold` finds."""
        found = self.hold(exchanges)
        assert not found, "untrue to Azure:\n  " + "\n  ".join(found)

    def unheld(self, exchanges: Iterable[Said]) -> set[str]:
        """The outcomes among these that neither a description nor a recording speaks of."""
        return {
            str(outcome_of(said))
            for said in exchanges
            if not self.recordings_of(said)
            and self.validator.response(
                said.method, said.path, said.query, said.status, said.response
            ).source
            is None
        }

    def _shape_of(self, outcome: Outcome) -> Shape:
        known = shape(*(recorded.response for recorded in self._known[outcome]))
        family = _family(outcome.route)
        if family:
            wider = shape(*self._things(family))
            listed = known.keys.get("value")
            target = known if listed is None or listed.items is None else listed.items
            target.loosen(wider, enough=_ENOUGH)
        return known

    def _things(self, family: str) -> Iterator[Any]:
        """Every recorded answer that is such a thing, or holds some."""
        for outcome, known in self._known.items():
            for recorded in known:
                body = recorded.response
                if not isinstance(body, dict):
                    continue
                if family == "view":
                    view = body.get("properties", {}).get("instanceView")
                    if outcome.route == "vm.instance-view":
                        yield body
                    elif outcome.route == "vm.get" and view is not None:
                        yield view
                elif _family(outcome.route) == family:
                    yield from body.get("value", [body])


_WAITS = (429, 503)

# Below so many recordings of one call, what its kin leave out may be left out there too.
_ENOUGH = 3


def _teller(said: Said) -> tuple[str, str]:
    """Who tells an error: the provider, of which namespace, or ARM in front of it."""
    if classify(said.method, said.path) == "prices":
        return "prices", ""
    namespaces = re.findall(r"/providers/([^/]+)", said.path)
    namespace = namespaces[-1].lower() if namespaces else ""
    detail = outcome_of(said).detail
    return (namespace if detail == "provider" else "", detail)


def _family(route: str) -> str:
    if route == "vm.instance-view":
        return "view"
    family, _, call = route.partition(".")
    things = family in {"vm", "extension", "nic", "ip"} and call.split("-")[0] in _THINGS
    return family if things else ""


_THINGS = frozenset({"put", "get", "patch", "list"})


def _settled(body: Any) -> Any:
    """What can be compared: an answer without the items that are still on their way."""
    if body == "":
        return None
    if isinstance(body, dict) and "totalRecords" in body:
        return body | {"data": _without_rows(body["data"])}
    if not isinstance(body, dict) or not isinstance(body.get("value"), list):
        return body
    states = (None, "Succeeded")
    items = [
        item
        for item in body["value"]
        if not isinstance(item, dict)
        or item.get("properties", {}).get("provisioningState") in states
    ]
    return {**body, "value": items}


def _without_rows(data: Any) -> Any:
    """What Resource Graph found depends on the query; how it hands that over does not."""
    return data | {"rows": []} if isinstance(data, dict) else []


def _unknown(faults: Iterable[Any], place: str) -> bool:
    return any(fault.kind == UNKNOWN and fault.place == place for fault in faults)
