"""`POST /internal/eviction` over real connections: who may speak, and how each is answered."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp import web

from bigfleet_azure.domain.callback import Key, sign
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.service.notices import Answer, Notice
from bigfleet_azure.telemetry.metrics import Metrics
from bigfleet_azure.web import notices as module
from bigfleet_azure.web.listener import HttpListenError, HttpTls, Listener
from bigfleet_azure.web.notices import MAX_BODY_BYTES, PATH, NoticeHandler, Senders

KEY, OLD = Key(b"n" * 32), Key(b"o" * 32)
SHARED = "shared-token"
MADE = {"m-1": "op-1-1", "m-2": "op-1-2"}
OWN = sign(KEY, "m-1", MADE["m-1"])


@dataclass
class Taken:
    """Stands for the service: keeps what it is told."""

    answer: Answer = Answer.TAKEN
    told: list[Notice] = field(default_factory=list)

    async def take(self, notice: Notice) -> Answer:
        self.told.append(notice)
        return self.answer


@dataclass
class Site:
    notices: Taken = field(default_factory=Taken)
    metrics: Metrics = field(default_factory=Metrics)
    shared: Secret | None = Secret(SHARED.encode())
    keys: tuple[Key, ...] = (KEY, OLD)
    port: int = 0

    def app(self) -> web.Application:
        senders = Senders(
            shared=self.shared, keys=lambda: self.keys, made_by=lambda name: MADE.get(name, "")
        )
        app = web.Application()
        NoticeHandler(self.notices, senders, self.metrics).mount(app)  # type: ignore[arg-type]
        return app

    async def post(
        self,
        body: Any = None,
        *,
        token: str | None = SHARED,
        method: str = "POST",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], str]:
        sent = {"Authorization": f"Bearer {token}"} if token is not None else {}
        data = body if isinstance(body, str | bytes) else json.dumps(body)
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method,
                f"http://127.0.0.1:{self.port}{PATH}",
                data=None if body is None else data,
                headers=sent | (headers or {}),
            ) as answer,
        ):
            return answer.status, dict(answer.headers), await answer.text()

    def refused(self, reason: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "bigfleet_azure_notices_refused_total", {"reason": reason}
        )


@contextlib.asynccontextmanager
async def serving(site: Site) -> AsyncIterator[Site]:
    listener = Listener(site.app(), "--metrics-addr")
    site.port = await listener.start("127.0.0.1", 0)
    try:
        yield site
    finally:
        await listener.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving(Site()) as running:
        yield running


def preempt(machine: str = "m-1", **more: Any) -> dict[str, Any]:
    return {"machine_id": machine, "event_type": "Preempt", **more}


@pytest.mark.behaviour(75, 90)
async def test_the_go_providers_notice_is_taken_with_the_shared_token(site: Site):
    assert (await site.post(preempt()))[0] == 204
    assert site.notices.told == [Notice(machine_id="m-1", event_type="Preempt", own=False)]


async def test_a_machines_notice_is_taken_with_its_own_token_and_all_it_says(site: Site):
    notice = preempt(
        event_id="A-1", event_status="Scheduled", not_before="Mon, 19 Sep 2016 18:29:47 GMT"
    )
    assert (await site.post(notice, token=OWN))[0] == 204
    assert site.notices.told == [
        Notice(
            machine_id="m-1",
            event_type="Preempt",
            event_id="A-1",
            not_before=1474309787.0,
            own=True,
        )
    ]


async def test_a_token_of_an_older_key_is_good_until_the_key_is_taken_away(site: Site):
    token = sign(OLD, "m-1", MADE["m-1"])
    assert (await site.post(preempt(), token=token))[0] == 204
    site.keys = (KEY,)
    assert (await site.post(preempt(), token=token))[0] == 401


@pytest.mark.behaviour(75, 77, 90)
@pytest.mark.parametrize(
    ("token", "machine"),
    [
        (None, "m-1"),
        ("", "m-1"),
        ("wrong", "m-1"),
        (SHARED + "x", "m-1"),
        (SHARED[:-1], "m-1"),
        ("größer", "m-1"),
        (OWN, "m-2"),
        (OWN, "m-3"),
        (OWN, ""),
        (sign(KEY, "m-1", "op-1-0"), "m-1"),
        (sign(Key(b"x" * 32), "m-1", MADE["m-1"]), "m-1"),
        (OWN[:-2] + "AA", "m-1"),
    ],
    ids=[
        "none",
        "empty",
        "wrong",
        "longer",
        "shorter",
        "not-ascii",
        "another-machine's",
        "no-machine's",
        "nobody's",
        "an-earlier-life's",
        "another-key's",
        "forged",
    ],
)
async def test_who_may_not_speak_is_refused_and_counted(
    site: Site, token: str | None, machine: str
):
    status, headers, _ = await site.post(preempt(machine), token=token)
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert site.notices.told == []
    assert site.refused("token") == 1


async def test_another_scheme_than_bearer_is_no_token(site: Site):
    headers = {"Authorization": f"Basic {SHARED}"}
    assert (await site.post(preempt(), token=None, headers=headers))[0] == 401
    headers = {"Authorization": f"bearer  {SHARED} "}
    assert (await site.post(preempt(), token=None, headers=headers))[0] == 204


async def test_without_a_shared_token_only_machines_may_speak():
    async with serving(Site(shared=None)) as site:
        assert (await site.post(preempt(), token=""))[0] == 401
        assert (await site.post(preempt(), token=SHARED))[0] == 401
        assert (await site.post(preempt(), token=OWN))[0] == 204


@pytest.mark.behaviour(75, 90)
async def test_a_notice_about_no_machine_changes_nothing(site: Site):
    assert (await site.post({"machine_id": "", "event_type": "Preempt"}))[0] == 204
    assert (await site.post({}))[0] == 204
    assert site.notices.told == []


@pytest.mark.behaviour(75, 90)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
async def test_other_methods_are_not_allowed(site: Site, method: str):
    status, headers, _ = await site.post(preempt(), method=method)
    assert (status, headers["Allow"]) == (405, "POST")


@pytest.mark.behaviour(75, 90)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"m-1"',
        b"null",
        b"\xff\xfe",
        b"[" * 4000,
        {"machine_id": 3},
        {"machine_id": None},
        {"machine_id": "m" * 254},
        {"machine_id": "m-1", "event_type": ["Preempt"]},
        preempt(event_id="x" * 257),
        preempt(not_before="tomorrow"),
        preempt(not_before=5),
        preempt(machine="\ud800"),
    ],
)
async def test_a_body_that_is_no_notice_is_refused(site: Site, body: Any):
    status, _, text = await site.post(body)
    assert status in (400, 204) if body == preempt(machine="\ud800") else status == 400
    assert "Traceback" not in text


@pytest.mark.behaviour(75, 90)
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_that_is_too_large_is_refused(site: Site, chunked: bool):
    padded = json.dumps(preempt(padding="x" * MAX_BODY_BYTES)).encode()

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(padded), 1000):
            yield padded[start : start + 1000]

    headers = {"Authorization": f"Bearer {SHARED}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://127.0.0.1:{site.port}{PATH}",
            data=parts() if chunked else padded,
            headers=headers,
        ) as answer,
    ):
        assert answer.status == 400
    assert site.refused("size") == 1
    assert site.notices.told == []


async def test_a_body_of_exactly_the_size_is_taken(site: Site):
    empty = len(json.dumps(preempt(padding="")))
    assert (await site.post(preempt(padding="x" * (MAX_BODY_BYTES - empty))))[0] == 204


async def test_a_body_that_does_not_come_is_not_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "BODY_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SHARED}\r\n"
    writer.write(f"{head}Content-Length: 50\r\n\r\n{{".encode())
    async with asyncio.timeout(5):
        assert b" 408 " in await reader.readline()
    writer.close()


@pytest.mark.parametrize(
    ("answer", "status", "wait"),
    [
        (Answer.TAKEN, 204, None),
        (Answer.DUPLICATE, 204, None),
        (Answer.IGNORED, 204, None),
        (Answer.TOO_EARLY, 503, "2"),
        (Answer.TOO_MANY, 429, "10"),
    ],
)
async def test_each_answer_has_its_status(
    site: Site, answer: Answer, status: int, wait: str | None
):
    site.notices.answer = answer
    found, headers, text = await site.post(preempt())
    assert (found, headers.get("Retry-After"), text) == (status, wait, "")


async def test_no_answer_shows_a_token(site: Site):
    for token in (OWN, SHARED, "wrong-token"):
        for body in (preempt("m-2"), "{", {"machine_id": 3}):
            _, headers, text = await site.post(body, token=token)
            assert token not in text
            assert token not in str(headers)


# The listener for machines only


@dataclass
class Tls:
    folder: Path
    ca: trustme.CA = field(default_factory=trustme.CA)

    def write(self, name: str = "localhost") -> HttpTls:
        issued = self.ca.issue_cert(name)
        files = HttpTls(self.folder / "tls.crt", self.folder / "tls.key")
        files.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        files.key.write_bytes(issued.private_key_pem.bytes())
        return files

    async def peer(self, port: int, version: str = "TLSv1_3") -> str:
        """The name in the certificate that is served."""
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        context.check_hostname = False
        context.maximum_version = getattr(ssl.TLSVersion, version)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        names = writer.get_extra_info("peercert")["subjectAltName"]
        writer.close()
        return str(names[0][1])


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return Tls(tmp_path)


async def test_new_certificate_files_are_used_and_faulty_ones_are_not(tls: Tls):
    told: list[str | None] = []
    files = tls.write("first.test")
    listener = Listener(Site().app(), "--callback-addr", tls=files, report=told.append)
    port = await listener.start("127.0.0.1", 0)
    try:
        assert await tls.peer(port) == "first.test"
        tls.write("second.test")
        listener.check()
        assert await tls.peer(port) == "second.test"
        whole = files.key.read_bytes()
        files.key.write_bytes(b"no key")
        listener.check()
        assert await tls.peer(port) == "second.test"
        assert "the last good ones stay in use" in (told[-1] or "")
        files.key.write_bytes(whole)
        listener.check()
        assert told[-1] is None
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await tls.peer(port, "TLSv1_2")
    finally:
        await listener.close()


@pytest.mark.parametrize("fault", ["missing", "no-pair", "encrypted"])
async def test_files_that_cannot_be_served_open_no_listener(tls: Tls, fault: str):
    files = tls.write()
    if fault == "missing":
        files.key.unlink()
    elif fault == "no-pair":
        files.key.write_bytes(trustme.CA().issue_cert("x").private_key_pem.bytes())
    else:
        from cryptography.hazmat.primitives import serialization as pem

        key = pem.load_pem_private_key(files.key.read_bytes(), None)
        secret = pem.BestAvailableEncryption(b"secret")
        files.key.write_bytes(key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, secret))
    listener = Listener(Site().app(), "--callback-addr", tls=files)
    with pytest.raises(HttpListenError, match=r"tls\.crt and .*tls\.key cannot be used"):
        await listener.start("127.0.0.1", 0)
