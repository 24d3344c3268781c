"""Eviction notices through the whole daemon: from a machine's user data to the shard's List."""

import asyncio
import base64
import re
import time
from collections import Counter
from email.utils import formatdate
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure.daemon.settings import SettingsError, resolve
from bigfleet_azure.domain.callback import Key, read_keys, sign
from tests.support.arm.faults import Fault, error
from tests.support.azure import Site, _free_port, azure_flags, environment

SHARED = "the-shared-token"
DATA = """#cloud-config
write_files:
  - path: /etc/bigfleet/callback-token
    content: __BIGFLEET_CALLBACK_TOKEN__
  - path: /etc/bigfleet/agent.env
    content: |
      BIGFLEET_MACHINE_ID=__BIGFLEET_MACHINE_ID__
      BIGFLEET_CALLBACK_URL=__BIGFLEET_CALLBACK_URL__
"""
URL = "https://daemon.test:9443"


def site_of(folder: Path, *flags: str, **more: Any) -> Site:
    (folder / "keys").write_text("n" * 44 + "\n")
    (folder / "data").write_text(DATA)
    given = (
        f"--callback-key-file={folder}/keys",
        f"--callback-url={URL}",
        f"--base-user-data={folder}/data",
        f"--eviction-token={SHARED}",
        "--failed-dwell=5m",
    )
    return Site(folder, *given, *flags, **more)


def user_data(site: Site, machine: str) -> str:
    """What the newest VM of that name was given."""
    puts = [
        one
        for one in site.arm.exchanges
        if one.route == "vm.put" and one.name == machine and one.status < 300
    ]
    return base64.b64decode(puts[-1].request["properties"]["osProfile"]["customData"]).decode()


def token(site: Site, machine: str) -> str:
    found = re.search(r"content: (bf1\.\S+)", user_data(site, machine))
    assert found is not None
    return found[1]


async def tell(
    site: Site,
    machine: str,
    bearer: str,
    *,
    port: int = 0,
    event_id: str = "E-1",
    path: str = "/internal/eviction",
) -> int:
    """Tell of an eviction in ten minutes: far enough ahead at the site's speed."""
    before = formatdate(site.arm.clock.now() + 600, usegmt=True)
    body = {
        "machine_id": machine,
        "event_type": "Preempt",
        "event_id": event_id,
        "not_before": before,
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://127.0.0.1:{port or site.http}{path}",
            json=body,
            headers={"Authorization": f"Bearer {bearer}"},
        ) as answer,
    ):
        return answer.status


async def test_each_machine_is_given_its_own_token_where_the_placeholders_stand(tmp_path: Path):
    async with site_of(tmp_path) as site:
        first, second = await site.ids(2, "spot")
        await asyncio.gather(site.idle(first), site.idle(second))
        (key,) = read_keys((tmp_path / "keys").read_bytes())
        for machine in (first, second):
            text = user_data(site, machine)
            operation = site.arm.vm(machine).tags["bigfleet-operation"]
            assert token(site, machine) == sign(key, machine, operation)
            assert f"BIGFLEET_MACHINE_ID={machine}\n" in text
            assert f"BIGFLEET_CALLBACK_URL={URL}\n" in text
            assert "__BIGFLEET" not in text
        assert token(site, first) != token(site, second)
        for machine in (first, second):
            await site.delete(machine)
            await site.reaches(machine, "SPECULATIVE")


@pytest.mark.behaviour(70, 75)
async def test_a_notice_is_seen_by_the_shard_at_once_and_its_machine_is_drained(tmp_path: Path):
    async with site_of(tmp_path) as site:
        machine = (await site.ids(1, "spot"))[0]
        await site.configured(machine)
        before = Counter(one.route for one in site.arm.exchanges)
        begun = time.monotonic()
        assert await tell(site, machine, token(site, machine)) == 204
        listed = (await site.machines())[machine]
        assert time.monotonic() - begun < 1
        assert listed.state == pb.MACHINE_STATE_DRAINING
        assert listed.cluster == "blue"
        failed = await site.reaches(machine, "FAILED", by_list=True)
        assert "announced by Azure: Preempt E-1" in failed.last_error
        drained = Counter(one.route for one in site.arm.exchanges) - before
        # A Drain's ordinary writes, and the deletion of what is left.
        writes = {r: n for r, n in drained.items() if r in ("extension.put", "tags.patch")}
        assert writes == {"extension.put": 1, "tags.patch": 1}
        assert await site.metric("bigfleet_azure_spot_evictions_total") == 1
        # Its capacity is offered again once the VM is gone.
        async with asyncio.timeout(20):
            while machine in (await site.machines()):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
        assert machine not in [vm.name for vm in site.arm.vms()]
        assert len(await site.machines()) == 8


@pytest.mark.behaviour(77)
async def test_the_token_of_an_earlier_life_and_of_another_machine_open_nothing(tmp_path: Path):
    async with site_of(tmp_path, keep=None) as site:
        machine, other = await site.ids(2, "spot")
        await site.idle(machine)
        old = token(site, machine)
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")
        await asyncio.gather(site.configured(machine), site.configured(other))
        for bearer in (old, token(site, other), sign(Key(b"x" * 44), machine, "op-1"), ""):
            assert await tell(site, machine, bearer) == 401
        assert (await site.get(machine)).state == pb.MACHINE_STATE_CONFIGURED
        assert await site.metric("bigfleet_azure_notices_refused_total", reason="token") == 4
        assert await tell(site, machine, token(site, machine)) == 204
        await site.reaches(machine, "FAILED", by_list=True)


@pytest.mark.behaviour(75)
async def test_repeated_notices_cost_azure_nothing(tmp_path: Path):
    async with site_of(tmp_path, "--reconcile-interval=0", keep=None) as site:
        machine = (await site.ids(1, "spot"))[0]
        await site.configured(machine)
        await site.passes(600)
        calls = len(site.arm.exchanges)
        for event_id in ("E-1", "E-1", "E-2", "E-2"):
            assert await tell(site, machine, SHARED, event_id=event_id) == 204
        assert len(site.arm.exchanges) == calls
        assert (await site.get(machine)).interruption_probability == 0.99


@pytest.mark.behaviour(52)
async def test_a_raised_probability_falls_back_when_the_slot_is_used_anew(tmp_path: Path):
    async with site_of(tmp_path) as site:
        machine = (await site.ids(1, "spot"))[0]
        usual = (await site.get(machine)).interruption_probability
        await site.idle(machine)
        assert await tell(site, machine, SHARED) == 204
        assert (await site.get(machine)).interruption_probability == 0.99
        await site.kill()
        await site.boot()
        assert (await site.get(machine)).interruption_probability == 0.99
        await site.delete(machine)
        await site.reaches(machine, "SPECULATIVE")
        assert (await site.get(machine)).interruption_probability == usual > 0


async def test_tokens_are_good_again_after_the_store_was_lost(tmp_path: Path):
    async with site_of(tmp_path, keep=None) as site:
        machine = (await site.ids(1, "spot"))[0]
        await site.configured(machine)
        bearer = token(site, machine)
        await site.wipe()
        await site.boot()
        assert (await site.get(machine)).state == pb.MACHINE_STATE_CONFIGURED
        assert await tell(site, machine, bearer[:-1] + "x") == 401
        assert await tell(site, machine, bearer) == 204
        await site.reaches(machine, "FAILED", by_list=True)


async def test_a_new_key_signs_and_the_old_one_is_honoured_while_it_stands(tmp_path: Path):
    async with site_of(tmp_path, keep=None) as site:
        old, new, last = await site.ids(3, "spot")
        await site.configured(old)
        (tmp_path / "keys").write_text("m" * 44 + "\n" + "n" * 44 + "\n")
        await site.passes(30)
        await site.configured(new)
        assert token(site, new)[:12] != token(site, old)[:12]
        assert await tell(site, old, token(site, old)) == 204
        (tmp_path / "keys").write_text("short\n")
        await site.shows("callback-keys (for", "the last good keys stay")
        (tmp_path / "keys").write_text("m" * 44 + "\n")
        await site.passes(30)
        await site.configured(last)
        assert await tell(site, last, token(site, last)) == 204


async def test_the_listener_for_machines_serves_nothing_else(tmp_path: Path):
    port = _free_port()
    async with site_of(tmp_path, f"--callback-addr=127.0.0.1:{port}", keep=None) as site:
        machine = (await site.ids(1, "spot"))[0]
        await site.idle(machine)
        for path in ("/metrics", "/readyz", "/healthz", "/"):
            assert await tell(site, machine, SHARED, port=port, path=path) == 404
        assert await tell(site, machine, SHARED, port=port) == 204
        assert await tell(site, machine, token(site, machine), port=port) == 204


async def test_a_listener_that_cannot_be_opened_is_a_condition(tmp_path: Path):
    taken = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    async with site_of(tmp_path, f"--callback-addr=127.0.0.1:{port}") as site:
        await site.shows("callback-listener (for", "in use already")
        assert len(await site.machines()) == 8
    taken.close()


async def test_without_a_token_or_a_key_there_is_no_such_address(tmp_path: Path):
    async with Site(tmp_path) as site:
        assert await tell(site, "x", SHARED) == 404


async def test_user_data_that_asks_for_what_there_is_not_is_refused_at_start(tmp_path: Path):
    site = site_of(tmp_path)
    with pytest.raises(SettingsError) as refusal:
        resolve(
            [*azure_flags_offline(), f"--base-user-data={tmp_path}/data"],
            {},
            lambda path: Path(path).read_bytes(),
        )
    text = str(refusal.value)
    assert "asks for __BIGFLEET_CALLBACK_URL__; give --callback-url" in text
    assert "asks for __BIGFLEET_CALLBACK_TOKEN__; give --callback-key-file" in text
    assert site.http == 0


def azure_flags_offline() -> list[str]:
    group = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g"
    subnet = f"{group}/providers/Microsoft.Network/virtualNetworks/n/subnets/s"
    return [
        "--location=eastus",
        "--subscription-id=00000000-0000-0000-0000-000000000000",
        "--resource-group=g",
        f"--subnet-id={subnet}",
    ]


@pytest.mark.behaviour(69)
async def test_no_token_or_key_is_seen_in_logs_metrics_or_conditions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("DEBUG")
    async with site_of(tmp_path, "--log-level=debug", keep=None) as site:
        machine = (await site.ids(1, "spot"))[0]
        fault = error(409, "Conflict", "customData may not change")
        site.arm.faults.add(Fault("vm.put", answer=fault, times=1))
        await site.configured(machine)
        bearer = token(site, machine)
        assert await tell(site, machine, bearer) == 204
        await tell(site, machine, bearer + "x")
        await site.reaches(machine, "FAILED", by_list=True)
        shown = caplog.text + "".join(
            [(await site.page(path))[1] for path in ("/metrics", "/readyz?verbose")]
        )
    for secret in (bearer, bearer[-20:], "n" * 44, SHARED):
        assert secret not in shown
    assert environment(site.arm)
    assert azure_flags(site.arm)


async def test_many_notices_at_once_cost_no_read_and_only_their_drains_writes(tmp_path: Path):
    flags = ("--reconcile-interval=0", "--price-refresh=0")
    async with site_of(tmp_path, *flags, seed_count=160, keep=None) as site:
        machines = await site.ids(60, "spot")
        await asyncio.gather(*(site.configured(machine) for machine in machines))
        await site.passes(60)
        # Its drains are held up, so that what is counted is the notices'.
        site.arm.faults.add(Fault("extension.put", delay=300, times=None))
        before = Counter(one.route for one in site.arm.exchanges)
        begun = time.monotonic()
        answers = await asyncio.gather(
            *(tell(site, machine, token(site, machine)) for machine in machines)
        )
        assert set(answers) == {204}
        listed = await site.machines()
        assert time.monotonic() - begun < 5
        assert {listed[machine].state for machine in machines} == {pb.MACHINE_STATE_DRAINING}
        during = Counter(one.route for one in site.arm.exchanges) - before
        # A drain looks at its VM and writes the hook's extension; the survey asks for itself.
        drains = {"vm.get", "extension.put", "extension.get", "compute.operation"}
        assert set(during) <= drains | {"compute.usages", "network.usages"}
        assert max(during["vm.get"], during["extension.put"]) <= 60
