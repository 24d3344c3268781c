"""The ARM double is held to the truth: recorded requests are sent again, answers compared."""

import dataclasses
import json
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest

from tests.arm.client import vm_body
from tests.support.arm.clock import ArmClock
from tests.support.arm.double import ArmDouble
from tests.support.arm.faults import Fault, error, operation_error
from tests.support.arm.graph import graph_row
from tests.support.arm.identity import CLIENT, SECRET, TENANT
from tests.support.arm.images import PlatformImage
from tests.support.arm.truth.holding import Truth
from tests.support.arm.truth.plans import PLANS, Plan
from tests.support.arm.truth.recordings import of_file
from tests.support.arm.truth.replay import Replay, Reply, report
from tests.support.arm.truth.shapes import missing_or_extra, shape

ZEROS = "00000000-0000-0000-0000-000000000000"
ELSEWHERE = frozenset({"westus", "westus2", "westeurope", "southcentralus", "eastus2"})
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TRUTH = Truth()

# What the recordings ran, long gone from the marketplace and from most regions.
OLD_IMAGES = (
    ("Canonical", "UbuntuServer", "18.04-LTS"),
    ("OpenLogic", "CentOS", "7.5"),
    ("MicrosoftWindowsServer", "WindowsServer", "2016-Datacenter"),
)
OLD_SIZES = ("Standard_D1_v2", "Standard_DS1_v2", "Standard_D2_v2")
LIKE = "Standard_D2s_v5"


class HandClock(ArmClock):
    """Real time, and what a test adds to it."""

    added = 0.0

    def now(self) -> float:
        return super().now() + self.added


class DoubleStage:
    """The double as a replay sees it: its names, what is put up in it, its time."""

    def __init__(self, arm: ArmDouble, clock: HandClock, session: aiohttp.ClientSession) -> None:
        self.arm = arm
        self.clock = clock
        self.session = session
        self.tls = ssl.create_default_context(cafile=arm.ca_file)
        self.token = arm.identity.issue("replay")
        for names in OLD_IMAGES:
            arm.cloud.images.add(PlatformImage(*names, generation="V1", trusted_launch=False))
        like = arm.cloud.catalogue.sizes[LIKE.lower()]
        for name in OLD_SIZES:
            arm.cloud.catalogue.sizes[name.lower()] = dataclasses.replace(like, name=name)

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        json: Any,
    ) -> Reply:
        form = isinstance(json, str)
        async with self.session.request(
            method,
            self.arm.endpoint + path,
            params=dict(query),
            headers={"Authorization": f"Bearer {self.token}", **headers} | (FORM if form else {}),
            json=None if form else json,
            data=json if form else None,
            ssl=self.tls,
        ) as response:
            text = await response.text()
            return response.status, dict(response.headers), _read(text)

    def rewrite(self, text: str) -> str:
        if text in ELSEWHERE:
            return self.arm.cloud.location
        if "| where " in text:
            return text
        if "grant_type=" in text:
            client = re.sub(r"client_id=[^&]*", f"client_id={CLIENT}", text)
            return re.sub(r"client_secret=[^&]*", f"client_secret={SECRET}", client)
        text = text.replace(
            f"/subscriptions/{ZEROS}", f"/subscriptions/{self.arm.cloud.subscription}"
        )
        text = text.replace(f"/{ZEROS}/", f"/{TENANT}/")
        return re.sub(r"/locations/[^/]+", f"/locations/{self.arm.cloud.location}", text)

    async def seed(self, arm_id: str) -> None:
        here = self.rewrite(arm_id)
        if self.arm.world.get(here) is not None:
            return
        parts = here.strip("/").split("/")
        if len(parts) == 4:
            self.arm.cloud.add_group(parts[3])
        elif parts[-2] == "subnets":
            self.arm.cloud.add_subnet(parts[3], parts[-3], parts[-1])
        else:
            self.arm.cloud.seed(here, f"{parts[5]}/{parts[6]}")

    async def script(self, name: str, plan: Plan) -> None:
        if name == "extension-fails":
            recorded = of_file(plan.file)[2].response["error"]
            failure = operation_error(recorded["code"], recorded["message"])
            self.arm.faults.add(Fault("extension.put", operation=failure))
        elif name == "agent-silent":
            for vm in self.arm.vms():
                vm.agent = False
        elif name == "network-retryable":
            recorded = of_file(plan.file)[0].response["error"]
            answer = error(429, recorded["code"], recorded["message"], details=recorded["details"])
            self.arm.faults.add(Fault("nic.put", answer=answer))

        elif name == "graph-rows":
            rows = [_as_ours(row) for row in of_file(plan.file)[0].response["data"]]
            self.arm.graph.tables["communitygalleryresources"] = rows
        elif name == "sold":
            self.arm.market.page = 10
            for step in of_file(plan.file):
                for item in step.response["Items"]:
                    ours = self.arm.market.row(item["armSkuName"], term=item.get("reservationTerm"))
                    self.arm.market.add(ours | {"meterId": item["meterId"]})

    async def pass_time(self, seconds: float) -> None:
        self.clock.added += seconds


def _as_ours(row: Any) -> Any:
    """A recorded row as the double writes it."""
    return graph_row(row["type"], row["location"], row["name"], row["properties"])


def _read(text: str) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.fixture
async def stage() -> AsyncIterator[DoubleStage]:
    clock = HandClock()
    async with ArmDouble(clock=clock) as arm, aiohttp.ClientSession() as session:
        yield DoubleStage(arm, clock, session)


@pytest.fixture
def replay(stage: DoubleStage) -> Replay:
    return Replay(stage, stage, TRUTH)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.file.removesuffix(".json"))
async def test_the_double_answers_as_azure_did(plan: Plan, replay: Replay) -> None:
    steps = await replay.run(plan)
    assert report(steps) == ""
    assert [step.recorded for step in steps] == plan.steps()


async def test_a_machine_with_its_parts_inside_lives_by_the_truth(
    stage: DoubleStage, replay: Replay
) -> None:
    """What no recording holds: the one request that brings a machine and all its parts."""
    body = vm_body(stage.arm, "m-1", public=True)
    group = f"/subscriptions/{stage.arm.cloud.subscription}/resourceGroups/fleet/providers"
    vm = f"{group}/Microsoft.Compute/virtualMachines/m-1"
    hook = {
        "publisher": "Microsoft.Azure.Extensions",
        "type": "CustomScript",
        "typeHandlerVersion": "2.1",
        "protectedSettings": {"script": "IyEvYmluL3NoCg=="},
    }
    await replay.make(vm, body)
    await replay.make(f"{vm}/extensions/hook", {"location": "eastus", "properties": hook})
    version = {"api-version": "2026-04-01"}
    network = {"api-version": "2026-03-01"}
    for path, query in (
        (vm, version),
        (vm, version | {"$expand": "instanceView"}),
        (f"{vm}/instanceView", version),
        (f"{vm}/extensions", version),
        (vm.rpartition("/")[0], version),
        (f"{group}/Microsoft.Network/networkInterfaces", network),
        (f"{group}/Microsoft.Network/publicIPAddresses", network),
    ):
        status, _headers, answer = await stage.send("GET", path, query, {}, None)
        assert status == 200
        assert answer
    await stage.send("DELETE", vm, version, {}, None)
    await stage.pass_time(60)
    assert (await stage.send("GET", vm, version, {}, None))[0] == 404
    assert TRUTH.hold(stage.arm.exchanges) == []


async def test_parts_described_inside_are_answered_as_the_vendor_shows(
    stage: DoubleStage, replay: Replay
) -> None:
    shown = of_file("vendor-vm-create-inline-nic.json")[1].response["properties"]["networkProfile"]
    group = f"/subscriptions/{stage.arm.cloud.subscription}/resourceGroups/fleet/providers"
    vm = f"{group}/Microsoft.Compute/virtualMachines/m-1"
    await replay.make(vm, vm_body(stage.arm, "m-1"))
    answered = stage.arm.exchanges[0].response["properties"]["networkProfile"]
    assert shape(answered).keys.keys() == shape(shown).keys.keys() == {"networkInterfaces"}
    assert missing_or_extra(answered, shape(shown), known=lambda _place: True) == []
