"""The replay itself: a recording played back has no difference, and a spoilt one has."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.arm import routes as double_routes
from tests.support.arm.truth import recordings, routes
from tests.support.arm.truth.holding import Truth
from tests.support.arm.truth.plans import PLANS, Plan, unplanned
from tests.support.arm.truth.playback import Playback, Spoil
from tests.support.arm.truth.recordings import TRAFFIC, Recorded, load
from tests.support.arm.truth.replay import Replay, Reply, report
from tests.support.arm.truth.routes import UNSPOKEN, classify

TRUTH = Truth()
DATA = recordings.WIRE.parent
LIFE = next(plan for plan in PLANS if plan.file == "vm-create-update-delete.json")
HOSTS = re.compile(r"https?://([A-Za-z0-9.-]+)")
RECORDED_HOSTS = (
    "azure.com",
    "microsoft.com",
    "aka.ms",
    "windows.net",
    "microsoftonline.com",
    "json-schema.org",
    "foo.com",
)
"""Where Azure's own answers and schemas point to; data that points elsewhere is none of those."""


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.file.removesuffix(".json"))
async def test_a_recording_played_back_shows_no_difference(plan: Plan) -> None:
    played = Playback(plan)
    steps = await Replay(played, played, TRUTH).run(plan)
    assert report(steps) == ""
    assert [step.recorded for step in steps] == plan.steps()
    assert not any(step.notes for step in steps)


def test_every_recording_of_spoken_routes_has_a_plan() -> None:
    assert unplanned() == set()
    planned = {step.where for plan in PLANS for step in plan.steps()}
    left_out = {f"{plan.file}[{index}]" for plan in PLANS for index in plan.left_out}
    spoken = {each.where for each in load() if each.fidelity == TRAFFIC and each.route != UNSPOKEN}
    assert spoken - planned == left_out


def dropped(name: str) -> Callable[[dict[str, str], Any], object]:
    return lambda headers, _body: headers.pop(name)


def changed(**values: object) -> Callable[[dict[str, str], Any], None]:
    return lambda _headers, body: body["properties"].update(values)


@pytest.mark.parametrize(
    ("index", "change", "expected"),
    [
        (0, dropped("azure-asyncoperation"), "header azure-asyncoperation: missing"),
        (0, dropped("x-content-type-options"), "header x-content-type-options: missing"),
        (0, lambda headers, _body: headers.update({"retry-after": "1.5"}), "retry-after: kind"),
        (0, lambda headers, _body: headers.update(location="https://x/"), "location: extra"),
        (0, changed(vmId="not a guid"), "$.properties.vmId: kind"),
        (0, changed(provisioningState=4), "$.properties.provisioningState: wrong type"),
        (0, changed(vmid="x"), "$.properties.vmid: unknown key"),
        (3, lambda _headers, body: body.pop("id"), "$.id: missing"),
        (3, lambda _headers, body: body["properties"].pop("vmId"), "$.properties.vmId: missing"),
        (2, lambda _headers, body: body.pop("endTime"), "$.endTime: missing"),
        (2, lambda _headers, body: body.update(status="Failed"), "state Failed where Succeeded"),
        (8, dropped("location"), "header location: missing"),
        (11, lambda _headers, body: body["error"].update(code="Gone"), "Gone where NotFound"),
    ],
)
async def test_a_spoilt_answer_is_found(
    index: int, change: Callable[[dict[str, str], Any], object], expected: str
) -> None:
    def spoil(recorded: Recorded, status: int, headers: dict[str, str], body: Any) -> Reply:
        if recorded.index == index:
            change(headers, body)
        return status, headers, body

    assert expected in await _spoilt(spoil)


async def test_another_status_is_found() -> None:
    def spoil(recorded: Recorded, status: int, headers: dict[str, str], body: Any) -> Reply:
        return (200 if recorded.index == 0 else status), headers, body

    assert "status 200 where 201 was recorded" in await _spoilt(spoil)


async def test_an_operation_that_cannot_be_followed_is_found() -> None:
    def spoil(recorded: Recorded, status: int, headers: dict[str, str], body: Any) -> Reply:
        return status, {} if recorded.index == 0 else headers, body

    assert "our side gave no URL for this operation" in await _spoilt(spoil)


async def _spoilt(spoil: Spoil) -> str:
    played = Playback(LIFE, spoil)
    return report(await Replay(played, played, TRUTH).run(LIFE))


def test_whatever_was_recorded_holds_against_all_other_recordings() -> None:
    for recorded in load():
        if recorded.fidelity == TRAFFIC and recorded.route != UNSPOKEN:
            assert list(TRUTH.answer_faults(recorded)) == [], recorded.where


def test_the_double_and_the_truth_name_the_same_calls() -> None:
    spoken = {
        (route.method, re.sub(r"\{scope\}|\{\w+\}", "x", route.template)): route.name
        for route in double_routes.ROUTES
    }
    named = {call: classify(*call) for call in spoken}
    assert named == spoken
    assert {route.name for route in routes.ROUTES} == set(spoken.values())


def test_the_data_names_its_sources_and_points_nowhere_else() -> None:
    told = (DATA / "README.md").read_text(encoding="utf-8")
    size = 0
    for path in sorted(DATA.rglob("*.json")):
        text = path.read_text(encoding="utf-8")
        size += len(text)
        assert f"`{path.name}`" in told
        assert all(host.endswith(RECORDED_HOSTS) for host in HOSTS.findall(text)), path
    assert all(host.endswith(RECORDED_HOSTS) for host in HOSTS.findall(told))
    assert size < 1_500_000
    assert not any(link.is_symlink() for link in Path(DATA).rglob("*"))
