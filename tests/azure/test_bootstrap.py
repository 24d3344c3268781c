"""The extension's body: what is in it, what is not, and how large a blob it carries."""

import base64
import gzip
import json
import os
from typing import Any

import pytest

from bigfleet_azure.backends.azure import bootstrap
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.secret import Secret
from tests.support.arm.guests import script_of

OPERATION = "op-3f2a9c01-17"
HOOK = "/opt/bigfleet/bootstrap"


def configure(blob: bytes = b"join me", operation_id: str = OPERATION) -> dict[str, Any]:
    return bootstrap.configure_extension(
        hook=HOOK,
        blob=Secret(blob),
        operation_id=operation_id,
        machine_id="m-1",
        deadline=1_764_547_200.25,
        location="eastus",
    )


def drain(operation_id: str = OPERATION) -> dict[str, Any]:
    return bootstrap.drain_extension(
        hook=HOOK,
        grace_seconds=120,
        operation_id=operation_id,
        machine_id="m-1",
        deadline=1_764_547_200.25,
        location="eastus",
    )


def encoded(extension: dict[str, Any]) -> str:
    script: str = extension["properties"]["protectedSettings"]["script"]
    return script


def test_the_extension_is_one_custom_script_keyed_by_its_operation() -> None:
    body = configure()
    script = body["properties"].pop("protectedSettings")
    assert list(script) == ["script"]
    assert body == {
        "location": "eastus",
        "properties": {
            "publisher": "Microsoft.Azure.Extensions",
            "type": "CustomScript",
            "typeHandlerVersion": "2.1",
            "autoUpgradeMinorVersion": True,
            "forceUpdateTag": OPERATION,
            "settings": {},
        },
    }


def test_the_handler_unpacks_it_to_a_script_that_holds_the_blob() -> None:
    properties = configure(b"join me")["properties"]
    script = script_of(properties["settings"], properties["protectedSettings"])
    assert script.startswith("#!/bin/sh\n")
    assert base64.b64encode(b"join me").decode() in script
    assert "deadline=1764547201\n" in script


def test_drain_runs_the_same_hook_with_the_grace() -> None:
    properties = drain()["properties"]
    script = script_of(properties["settings"], properties["protectedSettings"])
    assert script.endswith("\nrun --drain --grace=120\n")
    assert f"hook={HOOK}\n" in script


def test_an_operation_without_deadline_is_never_late() -> None:
    body = bootstrap.drain_extension(
        hook=HOOK,
        grace_seconds=0,
        operation_id=OPERATION,
        machine_id="m-1",
        deadline=float("inf"),
        location="eastus",
    )
    assert b"deadline=253402300799\n" in gzip.decompress(base64.b64decode(encoded(body)))


@pytest.mark.behaviour(69)
def test_what_azure_shows_again_holds_nothing_of_the_blob() -> None:
    body = configure(b"a-very-secret-token")
    del body["properties"]["protectedSettings"]
    shown = json.dumps(body)
    assert "secret" not in shown
    assert base64.b64encode(b"a-very-secret-token").decode() not in shown


def test_the_same_operation_gives_the_same_bytes_and_another_does_not() -> None:
    assert configure() == configure()
    assert drain() == drain()
    assert encoded(configure()) != encoded(configure(operation_id="op-3f2a9c01-18"))


SIZE = bootstrap.MAX_BLOB_BYTES
ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
HARD_TO_PACK = {
    "random": os.urandom(SIZE),
    "each byte in turn": bytes(range(256)) * (SIZE // 256),
    "each letter of base64 in turn": base64.b64decode(ALPHABET * (SIZE // 48)),
    "some letters far more often": base64.b64decode((b"A" * 30 + ALPHABET[:34]) * (SIZE // 48)),
    "half random, half zero": os.urandom(SIZE // 2) + bytes(SIZE // 2),
}


@pytest.mark.behaviour(21)
@pytest.mark.parametrize("kind", HARD_TO_PACK)
def test_the_largest_blob_always_fits(kind: str) -> None:
    blob = HARD_TO_PACK[kind].ljust(SIZE, b"\xa5")
    assert len(blob) == SIZE
    assert len(encoded(configure(blob))) <= 262_144


def test_the_script_around_the_blob_stays_in_the_room_that_is_kept_for_it() -> None:
    """What `MAX_BLOB_BYTES` counts on: 6,600 bytes, were nothing of the script to shrink."""
    for body in (configure(b""), drain()):
        assert len(gzip.decompress(base64.b64decode(encoded(body)))) < 5_000


def test_the_largest_blob_is_near_what_can_be_had_and_above_what_callers_send() -> None:
    assert SIZE >= 128 * 1024
    assert len(encoded(configure(os.urandom(SIZE)))) > 0.97 * 262_144


@pytest.mark.behaviour(69)
def test_a_script_that_is_too_large_is_refused_for_good_without_showing_it() -> None:
    with pytest.raises(BackendError, match="takes 262144") as caught:
        configure(b"secret-token" + os.urandom(200_000))
    assert caught.value.kind is FailureKind.INVALID
    assert "m-1" in str(caught.value)
    assert "secret" not in str(caught.value)
