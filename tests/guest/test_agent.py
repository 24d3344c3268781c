"""The eviction agent between the metadata service and the daemon: what it tells, and what not."""

import asyncio
import copy
import json
import ssl
from typing import Any

import pytest
import trustme

from tests.guest.agents import TOKEN, Agent
from tests.guest.imds import NO_EVENTS, Imds, freezing, preempt, recorded
from tests.guest.notices import StandInDaemon
from tests.guest.serving import Answer, serving, until

pytestmark = pytest.mark.process

Json = dict[str, Any]
Settings = dict[str, str]

NOTICE = {
    "machine_id": "vm-spot",
    "event_type": "Preempt",
    "event_id": "C1BF8322-4CBF-4FC4-9C45-B40CF3106D0E",
    "event_status": "Scheduled",
    "not_before": "Tue, 09 Aug 2022 17:07:32 GMT",
}
"""What the daemon is to be told of the recorded eviction."""


def with_event(**changes: Any) -> Json:
    """The recorded eviction, changed."""
    document = copy.deepcopy(preempt())
    document["Events"][0].update(changes)
    return document


async def rounds(imds: Imds, number: int = 5) -> None:
    """Let the agent poll that often."""
    wanted = imds.polls + number
    await until(lambda: imds.polls >= wanted, "the agent polls")


async def test_an_eviction_is_told_once(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = preempt()
    async with agent.running(**settings):
        await until(lambda: daemon.taken, "the notice is taken")
        await rounds(imds)
    assert daemon.seen == [NOTICE]
    assert imds.approved == []


async def test_each_status_of_an_event_is_told(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    settings["BIGFLEET_MACHINE_ID"] = "WestNO_1"
    async with agent.running(**settings):
        for document in freezing():
            imds.document = document
            await rounds(imds, 3)
    assert [(each["event_status"], each["not_before"]) for each in daemon.seen] == [
        ("Scheduled", "Mon, 11 Apr 2026 22:26:58 GMT"),
        ("Started", ""),
    ]
    assert {each["event_type"] for each in daemon.seen} == {"Freeze"}


async def test_every_kind_of_event_is_told_and_an_eviction_first(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    kinds = recorded("kinds")["events"]
    others = [
        {**each, "EventId": str(number), "Resources": ["vm-spot"], "EventStatus": "Scheduled"}
        for number, each in enumerate(kinds)
    ]
    imds.document = {"DocumentIncarnation": 1, "Events": others + preempt()["Events"]}
    async with agent.running(**settings):
        await until(lambda: len(daemon.taken) > len(kinds), "all are taken")
    assert [each["event_type"] for each in daemon.seen] == [
        "Preempt",
        *(each["EventType"] for each in kinds),
    ]


async def test_other_machines_events_are_not_told(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = with_event(Resources=["vm-spot2", "vm-spo", "xvm-spot", ""])
    async with agent.running(**settings):
        await rounds(imds)
        assert daemon.seen == []
        imds.document = with_event(Resources=["other", "VM-Spot"])
        await until(lambda: daemon.taken, "the notice is taken")


async def test_a_machine_id_that_is_no_name_is_told_for_the_vm_that_azure_names(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = preempt()
    imds.name = ""
    settings |= {"BIGFLEET_MACHINE_ID": "azure-eastus/Spot/F8s/eastus-1/000", "HOSTNAME": "host"}
    async with agent.running(**settings):
        await rounds(imds)
        imds.name, imds.cut = "vm-spot", True
        await rounds(imds, 10)
        assert daemon.seen == []
        imds.cut = False
        await until(lambda: daemon.taken, "the notice is taken")
    assert daemon.taken == [{**NOTICE, "machine_id": settings["BIGFLEET_MACHINE_ID"]}]


async def test_the_host_name_stands_in_for_a_machine_id_that_was_not_filled_in(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = preempt()
    settings |= {"BIGFLEET_MACHINE_ID": "__BIGFLEET_MACHINE_ID__", "HOSTNAME": "vm-spot.internal"}
    async with agent.running(**settings):
        await until(lambda: daemon.taken, "the notice is taken")
    assert daemon.taken == [NOTICE]


async def test_a_notice_is_sent_until_it_is_taken(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = preempt()
    daemon.instead = [Answer(status=status) for status in (500, 503, 429, 200)]
    async with agent.running(**settings):
        await until(lambda: daemon.taken, "the notice is taken")
        await rounds(imds)
    assert daemon.seen == [NOTICE] * 5
    assert max(agent.pauses("/internal/eviction")) <= 8


async def test_the_daemon_is_given_the_time_that_it_asks_for(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = preempt()
    daemon.instead = [Answer(status=429, headers={"Retry-After": "15"})]
    async with agent.running(**settings):
        await until(lambda: daemon.taken, "the notice is taken")
    assert agent.pauses("/internal/eviction") == [15]


async def test_a_daemon_that_is_away_is_told_when_it_is_back(
    agent: Agent, imds: Imds, daemon: StandInDaemon, imds_url: str, settings: Settings
) -> None:
    async with serving(daemon.application()) as url:
        pass
    imds.document = preempt()
    settings["BIGFLEET_CALLBACK_URL"] = url
    async with agent.running(**settings):
        await agent.says("the daemon cannot be told yet")
        async with serving(daemon.application(), port=int(url.rpartition(":")[2])):
            await until(lambda: daemon.taken, "the notice is taken")
    assert daemon.taken == [NOTICE]


async def test_a_refusal_is_not_argued_with_but_another_status_is_told(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    statuses = (400, 401, 403, 404, 405, 413, 422, 301)
    [event] = preempt()["Events"]
    imds.document = {
        "DocumentIncarnation": 1,
        "Events": [{**event, "EventId": f"event-{status}"} for status in statuses],
    }
    daemon.instead = [
        Answer(status=status, headers={"Location": "/internal/eviction"})
        for status in reversed(statuses)
    ]
    async with agent.running(**settings):
        for status in statuses:
            await agent.says(f'the daemon refuses, status {status}: "Preempt" "event-{status}"')
        await rounds(imds, 10)
        assert len(daemon.seen) == len(statuses)
        imds.document = with_event(EventId="event-401", EventStatus="Started", NotBefore="")
        await until(lambda: daemon.taken, "the notice is taken")
    [taken] = daemon.taken
    assert (taken["event_id"], taken["event_status"]) == ("event-401", "Started")


async def test_an_event_that_is_over_is_not_sent_any_more(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = preempt()
    daemon.instead = [Answer(status=503)] * 100
    async with agent.running(**settings):
        await until(lambda: daemon.seen, "the notice is sent")
        imds.document = NO_EVENTS
        await rounds(imds, 2)
        sent = len(daemon.seen)
        await rounds(imds, 15)
    assert len(daemon.seen) == sent


async def test_trouble_with_the_metadata_service_is_waited_out(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = preempt()
    imds.instead = [Answer(status=status) for status in (429, 429, 429, 500, 410)]
    async with agent.running(**settings):
        await until(lambda: daemon.taken, "the notice is taken")
        await agent.says("answer again")
    pauses = agent.pauses("/scheduledevents")
    assert all(
        least <= pause <= 2 * least for least, pause in zip((1, 2, 4, 4, 4), pauses, strict=False)
    )
    assert agent.words().count("Scheduled Events: status 429") == 1


async def test_what_was_known_is_sent_also_while_the_metadata_service_is_away(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = preempt()
    daemon.instead = [Answer(status=503)]
    async with agent.running(**settings):
        await until(lambda: daemon.seen, "the notice is sent")
        imds.instead = [Answer(status=500)] * 1000
        await until(lambda: daemon.taken, "the notice is taken")


async def test_what_is_no_document_of_events_does_not_end_the_watch(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = preempt()
    daemon.instead = [Answer(status=503)] * 2
    async with agent.running(**settings):
        await until(lambda: daemon.seen, "the notice is sent")
        for document in (b"", b'{"Events":[]', b"x" * 1_000_000):
            imds.document = document
            await rounds(imds, 1)
        await until(lambda: daemon.taken, "what was known is told")
        imds.document = with_event(EventStatus="Started")
        await until(lambda: len(daemon.taken) > 1, "the next is told")
    assert "no document of events" in agent.words()


async def test_the_first_answer_may_take_minutes_and_the_others_may_not(
    agent: Agent, imds: Imds, settings: Settings
) -> None:
    async with agent.running(**settings):
        await rounds(imds)
    polls = [line for line in agent.calls.read_text().splitlines() if "scheduledevents" in line]
    assert "--max-time 150 " in polls[0]
    assert all("--max-time 5 " in each for each in polls[1:])


async def test_a_daemon_is_known_by_its_certificate(
    agent: Agent, imds: Imds, daemon: StandInDaemon, imds_url: str
) -> None:
    authority = trustme.CA()
    tls = authority_context(authority)
    imds.document = preempt()
    async with serving(daemon.application(), tls=tls) as url:
        settings = {
            "BIGFLEET_TEST_IMDS": imds_url,
            "BIGFLEET_CALLBACK_URL": url,
            "BIGFLEET_MACHINE_ID": "vm-spot",
        }
        async with agent.running(**settings):
            await agent.says("the daemon cannot be told yet")
        assert daemon.seen == []
        path = agent.log.with_name("ca.pem")
        path.write_bytes(authority.cert_pem.bytes())
        async with agent.running(**settings, BIGFLEET_CALLBACK_CA=str(path)):
            await until(lambda: daemon.taken, "the notice is taken")
    assert "in clear" not in agent.words()


def authority_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"BIGFLEET_CALLBACK_URL": "__BIGFLEET_CALLBACK_URL__"}, "--callback-url"),
        ({"BIGFLEET_CALLBACK_URL": ""}, "BIGFLEET_CALLBACK_URL is not set"),
        ({"BIGFLEET_CALLBACK_URL": "file:///etc/passwd"}, "BIGFLEET_CALLBACK_URL"),
        ({"BIGFLEET_MACHINE_ID": 'a"b'}, "BIGFLEET_MACHINE_ID"),
        ({"BIGFLEET_CALLBACK_CA": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"CREDENTIALS_DIRECTORY": "/nowhere"}, "/nowhere/callback-token"),
    ],
)
async def test_settings_that_cannot_work_are_named_and_not_tried_again(
    agent: Agent, settings: Settings, wrong: Settings, words: str
) -> None:
    async with agent.running(**{**settings, **wrong}) as process:
        assert await asyncio.wait_for(process.wait(), 10) == 78
    assert words in agent.words()


@pytest.mark.parametrize("token", ["", "__BIGFLEET_CALLBACK_TOKEN__", 'a"\nurl = "file:///x"'])
async def test_what_is_no_token_is_not_sent(agent: Agent, settings: Settings, token: str) -> None:
    agent.token.write_text(token)
    async with agent.running(**settings) as process:
        assert await asyncio.wait_for(process.wait(), 10) == 78
    assert "token" in agent.words()


async def test_an_eviction_is_acknowledged_when_told_to_and_the_node_is_drained(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = preempt()
    daemon.instead = [Answer(status=503)]
    async with agent.running(**settings, BIGFLEET_ACKNOWLEDGE="true"):
        agent.drained.touch()
        await until(lambda: daemon.seen, "the notice is sent")
        assert imds.approved == []
        agent.drained.unlink()
        await until(lambda: daemon.taken, "the notice is taken")
        await rounds(imds)
        assert imds.approved == []
        agent.drained.touch()
        await until(lambda: imds.approved, "the event is acknowledged")
        await rounds(imds)
    assert imds.approved == [recorded("preempt")["acknowledge"]["body"]]


@pytest.mark.parametrize("changes", [{"EventType": "Freeze"}, {"EventStatus": "Started"}, None])
async def test_nothing_else_is_acknowledged(
    agent: Agent,
    imds: Imds,
    daemon: StandInDaemon,
    settings: Settings,
    changes: Json | None,
) -> None:
    imds.document = with_event(**(changes or {}))
    agent.drained.touch()
    told = {} if changes is None else {"BIGFLEET_ACKNOWLEDGE": "true"}
    async with agent.running(**settings, **told):
        await until(lambda: daemon.taken, "the notice is taken")
        await rounds(imds)
    assert imds.approved == []


async def test_a_notice_stays_small_whatever_azure_says(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = with_event(EventId="x" * 5000, NotBefore="y" * 200)
    async with agent.running(**settings):
        await until(lambda: daemon.taken, "the notice is taken")
    assert daemon.taken == [{**NOTICE, "event_id": "", "not_before": "y" * 200}]
    assert len(json.dumps(daemon.taken[0])) < 2048


async def test_the_token_is_sent_and_found_nowhere_else(
    agent: Agent, imds: Imds, daemon: StandInDaemon, settings: Settings
) -> None:
    imds.document = preempt()
    async with agent.running(**settings):
        await until(lambda: daemon.taken, "the notice is taken")
    everything = [path for path in agent.log.parent.rglob("*") if path.is_file()]
    assert [path for path in everything if TOKEN in path.read_text()] == [agent.token]
