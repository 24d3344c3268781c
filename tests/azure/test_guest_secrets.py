"""What guests print, without secrets."""

import base64
import os
import random
import string
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bigfleet_azure.backends.azure.guest_secrets import SHORTEST_PIECE, without_secrets
from bigfleet_azure.domain.secret import Secret

pytestmark = pytest.mark.behaviour(69)

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJlLXZhbHVl"
PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEow/+IBAAKCAQEA\n" * 3 + "Zm9v\n"
PEM_END = "-----END RSA PRIVATE KEY-----"


@given(blob=st.binary(min_size=SHORTEST_PIECE, max_size=300), data=st.data())
def test_any_piece_of_the_blob_is_masked(blob: bytes, data: st.DataObject) -> None:
    text = blob.decode(errors="replace")
    start = data.draw(st.integers(0, max(0, len(text) - SHORTEST_PIECE)))
    piece = text[start : data.draw(st.integers(start + SHORTEST_PIECE, len(text) + SHORTEST_PIECE))]
    assume(len(piece) >= SHORTEST_PIECE)
    shown = without_secrets(f"<<{piece}>>", Secret(blob))
    assert piece not in shown
    assert "***" in shown


@given(
    blob=st.binary(min_size=40, max_size=300),
    start=st.integers(0, 12),
    words=st.sampled_from(["", "hook says: "]),
)
def test_the_blobs_base64_is_masked_wherever_it_was_cut(
    blob: bytes, start: int, words: str
) -> None:
    piece = base64.b64encode(blob[start:]).decode()
    shown = without_secrets(f"{words}{piece}", Secret(blob))
    assert shown.startswith(f"{words}***")
    assert piece[:-4] not in shown


def test_fifteen_characters_of_the_blob_may_be_chance() -> None:
    secret = Secret(b"starts kubelet.service when joined")
    assert len("kubelet.service") == 15
    assert without_secrets("(kubelet.service)", secret) == "(kubelet.service)"
    assert without_secrets("(kubelet.service when)", secret) == "(***)"


def test_a_short_blob_is_masked_as_a_whole() -> None:
    assert without_secrets("joined with pw-1!", Secret(b"pw-1")) == "joined with ***!"
    assert without_secrets("nothing", Secret(b"")) == "nothing"


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("kubeadm join --token abcdef.0123456789abcdef -v", "kubeadm join --token *** -v"),
        ("token is abcdef.0123456789abcdef.", "token is ***."),
        ("got " + JWT + " back", "got *** back"),
        ("Authorization: Bearer abc\nnext", "Authorization: ***\nnext"),
        ("sent bearer abcdefghijklmnop", "sent bearer ***"),
        ("password=hunter2 user=me", "password=*** user=me"),
        ("DB_PASSWORD: 'two words' x", "DB_PASSWORD: *** x"),
        ('{"clientSecret": "s3cr3t", "a": 1}', '{"clientSecret": ***, "a": 1}'),
        ("--bootstrap-token s3cr3t --node n", "--bootstrap-token *** --node n"),
        ("AccountKey=abc==;EndpointSuffix=x", "AccountKey=***;EndpointSuffix=x"),
        ("https://a.blob/x?sv=1&sig=a%2Fb&se=2", "https://a.blob/x?sv=1&sig=***&se=2"),
        ("http://me:pw@proxy:3128/", "http://***@proxy:3128/"),
        ("K10" + "0a" * 32 + "::server:pw joined", "*** joined"),
        (f"a\n{PEM}{PEM_END}\nb", "a\n***\nb"),
        (f"a\n{PEM}", "a\n***\n"),
        (f"AKCAQEA\n{PEM_END}\nb", "***\nb"),
        ("QUJD" * 15 + "\nend", "***\nend"),
    ],
)
def test_what_looks_like_a_secret_is_masked(printed: str, shown: str) -> None:
    assert without_secrets(printed) == shown


@pytest.mark.parametrize(
    "printed",
    [
        "error: the token expired",
        "exit code: 1",
        "script: line 3: kubelet: not found",
        "/subscriptions/0000/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m-1",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 pulled",
        "https://10.0.0.1:6443/healthz: connection refused",
        "basic configuration done",
    ],
)
def test_what_helps_to_find_the_fault_stays(printed: str) -> None:
    assert without_secrets(printed) == printed


@pytest.mark.parametrize(
    "unit", ["-", "--a", "a.", "a_-", "A\n", "key", "://", "token", "=", "'", "eyJ"]
)
def test_a_guest_cannot_keep_us_busy(unit: str) -> None:
    began = time.process_time()
    without_secrets(unit * (8_192 // len(unit)))
    assert time.process_time() - began < 1


def test_the_largest_blob_and_the_longest_output_take_no_time_to_speak_of() -> None:
    blob = os.urandom(184 * 1024)
    letters = random.Random(1).choices(string.ascii_letters, k=8_192)
    began = time.process_time()
    without_secrets("".join(letters), Secret(blob))
    assert time.process_time() - began < 3
