"""The HTTP listener, asked over real connections."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.telemetry.metrics import Metrics
from bigfleet_azure.web.app import StatusPages
from bigfleet_azure.web.listener import HttpListenError, Listener


class StillClock:
    pace = 1.0

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here may wait")


@dataclass
class Site:
    """A listener, what it shows, and a client."""

    metrics: Metrics = field(default_factory=Metrics)
    clock: StillClock = field(default_factory=StillClock)
    is_ready: bool = True
    scrapes: int = 0
    notes: dict[str, str] = field(default_factory=dict)
    port: int = 0

    def __post_init__(self) -> None:
        self.conditions = Conditions(self.clock, self.metrics)
        app = web.Application()
        StatusPages(
            self.metrics,
            self.conditions,
            self.clock,
            ready=lambda: self.is_ready,
            refresh=self.refresh,
            notes=lambda: self.notes,
        ).mount(app)
        self.server = Listener(app, "--metrics-addr")

    def refresh(self) -> None:
        self.scrapes += 1
        self.metrics.debts.set(self.scrapes)

    async def ask(
        self, path: str, *, method: str = "GET", accept: str = "*/*"
    ) -> tuple[int, str, str]:
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self.port}") as session,
            session.request(method, path, headers={"Accept": accept}) as answer,
        ):
            return answer.status, answer.headers.get("Content-Type", ""), await answer.text()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    site.port = await site.server.start("127.0.0.1", 0)
    yield site
    await site.server.close()


async def test_healthz_is_always_ok(site: Site) -> None:
    site.is_ready = False
    assert await site.ask("/healthz") == (200, "text/plain; charset=utf-8", "ok")


async def test_readyz_follows_readiness(site: Site) -> None:
    assert await site.ask("/readyz") == (200, "text/plain; charset=utf-8", "ready")
    site.is_ready = False
    assert await site.ask("/readyz") == (503, "text/plain; charset=utf-8", "not ready")


async def test_standing_conditions_are_shown_with_age_and_change_no_status(site: Site) -> None:
    site.conditions.set("store", "the disk is full:\n  free some space")
    site.clock.time += 65.4
    site.conditions.set("credential", "expired")
    site.clock.time += 0.5
    status, _, text = await site.ask("/readyz?verbose")
    assert status == 200
    assert text.splitlines() == [
        "ready",
        "credential (for 0:00:00): expired",
        "store (for 0:01:06): the disk is full: free some space",
    ]


async def test_notes_stand_after_the_conditions_and_are_no_trouble(site: Site) -> None:
    site.conditions.set("store", "full")
    site.notes["capacity"] = "2 offerings withheld: no cores\nleft"
    status, _, text = await site.ask("/readyz?verbose")
    assert status == 200
    assert text.splitlines()[1:] == [
        "store (for 0:00:00): full",
        "capacity: 2 offerings withheld: no cores left",
    ]
    _, _, text = await site.ask("/readyz?verbose&format=json")
    assert json.loads(text)["notes"] == site.notes
    assert (await site.ask("/readyz"))[2] == "ready"


async def test_cleared_conditions_are_gone(site: Site) -> None:
    site.conditions.set("store", "full")
    site.conditions.clear("store")
    assert (await site.ask("/readyz?verbose"))[2] == "ready\n"


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        ("/readyz?verbose", "application/json"),
        ("/readyz?verbose&format=json", "*/*"),
        ("/readyz?verbose=1&format=json", "*/*"),
    ],
)
async def test_conditions_are_told_to_programs_as_json(site: Site, path: str, accept: str) -> None:
    site.is_ready = False
    site.conditions.set("store", "full")
    site.clock.time += 2
    status, content_type, text = await site.ask(path, accept=accept)
    assert (status, content_type) == (503, "application/json; charset=utf-8")
    assert json.loads(text) == {
        "ready": False,
        "conditions": [
            {"name": "store", "message": "full", "since": 1_000_000.0, "age_seconds": 2.0}
        ],
        "notes": {},
    }


async def test_metrics_are_brought_up_to_date_for_each_scrape(site: Site) -> None:
    await site.ask("/metrics")
    status, content_type, text = await site.ask("/metrics")
    assert status == 200
    assert content_type.startswith("text/plain; version=")
    assert "\nbigfleet_azure_debts 2.0\n" in text
    assert "\nprocess_resident_memory_bytes " in text


async def test_metrics_speak_open_metrics_when_asked(site: Site) -> None:
    _, content_type, text = await site.ask("/metrics", accept="application/openmetrics-text")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize("path", ["/", "/internal/eviction", "/healthz/", "/debug/pprof"])
async def test_every_other_path_is_not_found(site: Site, path: str) -> None:
    assert (await site.ask(path))[0] == 404


@pytest.mark.parametrize(
    ("path", "status"), [("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/x", 404)]
)
async def test_head_answers_as_get_without_a_body(site: Site, path: str, status: int) -> None:
    assert (await site.ask(path, method="HEAD"))[::2] == (status, "")


async def test_posting_to_a_page_is_refused(site: Site) -> None:
    assert (await site.ask("/healthz", method="POST"))[0] == 405


async def test_a_taken_port_is_an_error_that_names_port_and_flag(site: Site) -> None:
    second = Site()
    text = rf"--metrics-addr: 127\.0\.0\.1:{site.port} is in use already"
    with pytest.raises(HttpListenError, match=text):
        await second.server.start("127.0.0.1", site.port)
    await second.server.close()


async def test_a_port_taken_on_every_interface_is_an_error_too() -> None:
    first, second = Site(), Site()
    port = await first.server.start("", 0)
    with pytest.raises(HttpListenError, match="in use already"):
        await second.server.start("", port)
    await first.server.close()


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("192.0.2.1", "--metrics-addr: cannot listen on 192.0.2.1:0: Cannot assign"),
        ("2001:db8::1", r"--metrics-addr: cannot listen on \[2001:db8::1\]:0: "),
        ("no-such-host.invalid", "--metrics-addr: no-such-host.invalid:0 cannot be resolved"),
    ],
)
async def test_an_address_that_is_not_ours_is_an_error_with_its_reason(
    host: str, text: str
) -> None:
    with pytest.raises(HttpListenError, match=text):
        await Site().server.start(host, 0)


def connects(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=5):
        return True
    return False


async def test_an_empty_host_takes_both_ip_versions() -> None:
    site = Site()
    port = await site.server.start("", 0)
    assert connects("127.0.0.1", port)
    assert connects("::1", port) or not socket.has_dualstack_ipv6()
    await site.server.close()


@pytest.fixture
def without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    create = socket.create_server

    def refuse(
        address: tuple[str, int],
        *,
        family: int = socket.AF_INET,
        dualstack_ipv6: bool = False,
    ) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(99, "Cannot assign requested address")
        return create(address, family=family, dualstack_ipv6=dualstack_ipv6)

    monkeypatch.setattr(socket, "create_server", refuse)


@pytest.mark.usefixtures("without_ipv6")
async def test_an_empty_host_takes_ipv4_where_ipv6_is_off() -> None:
    site = Site()
    port = await site.server.start("", 0)
    assert connects("127.0.0.1", port)
    await site.server.close()


async def test_nothing_answers_after_close(site: Site) -> None:
    await site.server.close()
    assert not connects("127.0.0.1", site.port)
