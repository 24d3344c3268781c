"""Tokens of single machines: what they open, and what they do not."""

import pytest

from bigfleet_azure.domain.callback import Key, formed, read_keys, sign, verify

KEY = Key(b"k" * 32)
OTHER = Key(b"o" * 44)
MACHINE, OPERATION = "azure-eastus-spot-f8s-v2-1-000", "op-0123abcd-42"
TOKEN = sign(KEY, MACHINE, OPERATION)


def test_a_token_opens_its_own_machine() -> None:
    assert verify([KEY], TOKEN, MACHINE, OPERATION)
    assert verify([OTHER, KEY], TOKEN, MACHINE, OPERATION), "an older key is still in force"
    assert formed(TOKEN)


@pytest.mark.behaviour(77)
@pytest.mark.parametrize(
    ("token", "machine", "operation"),
    [
        (TOKEN, "azure-eastus-spot-f8s-v2-1-001", OPERATION),
        (TOKEN, MACHINE, "op-0123abcd-43"),
        (TOKEN, MACHINE, "op-ffffffff-42"),
        (TOKEN, MACHINE, ""),
        (sign(OTHER, MACHINE, OPERATION), MACHINE, OPERATION),
        (TOKEN[:-1] + ("A" if TOKEN[-1] != "A" else "B"), MACHINE, OPERATION),
        (TOKEN.replace(KEY.id, OTHER.id), MACHINE, OPERATION),
        (TOKEN + "A", MACHINE, OPERATION),
        (TOKEN[4:], MACHINE, OPERATION),
        ("", MACHINE, OPERATION),
        ("bf1.ünïcode.x", MACHINE, OPERATION),
    ],
)
def test_a_foreign_forged_or_older_token_opens_nothing(
    token: str, machine: str, operation: str
) -> None:
    assert not verify([KEY], token, machine, operation)


def test_a_token_of_a_key_that_was_taken_away_opens_nothing() -> None:
    assert not verify([OTHER], TOKEN, MACHINE, OPERATION)
    assert not verify([], TOKEN, MACHINE, OPERATION)


def test_neither_a_token_nor_an_id_shows_the_key() -> None:
    assert "kkk" not in TOKEN
    assert "kkk" not in repr(KEY)
    assert KEY.id != OTHER.id
    assert KEY.id in TOKEN


def test_names_that_run_together_are_not_mistaken_for_each_other() -> None:
    assert sign(KEY, "a", "bc") != sign(KEY, "ab", "c")


def test_a_key_file_has_a_key_a_line_the_newest_first() -> None:
    content = b"# newest\n" + b"n" * 32 + b"\r\n\n  " + b"o" * 40 + b"  \n"
    assert read_keys(content) == (Key(b"n" * 32), Key(b"o" * 40))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no key"),
        (b"# nothing\n\n", "holds no key"),
        (b"n" * 32 + b"\nshort\n", "5 characters in line 2"),
    ],
)
def test_a_key_file_that_cannot_be_used_says_what_to_write(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        read_keys(content)
    assert "openssl rand -base64 32" in str(refusal.value)
    assert b"short" not in str(refusal.value).encode()
