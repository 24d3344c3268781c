"""Tags: ownership at birth, and the binding that survives a lost store."""

import base64
import string
import zlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet_azure.backends.azure import tags
from bigfleet_azure.backends.azure.tags import Marks, binding_tags, birth_tags, metadata_of
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.limits import MAX_METADATA_BYTES
from tests.support.arm.ledger import VM
from tests.support.arm.tags import check_tags

OPERATION = "op-3f2a9c01-17"
LATER = "op-3f2a9c01-29"

REAL = {
    "bigfleet.lucy.sh/assigned-priority": "1000",
    "bigfleet.lucy.sh/assigned-interruption-penalty-dollars": "0.25",
    "bigfleet.lucy.sh/assigned-reclamation-penalty-dollars": "1.5",
    "bigfleet.lucy.sh/assigned-need-fingerprint": "9f86d081884c7d659a2feaa0c55ad015",
    "bigfleet.lucy.sh/assigned-group": "training\x00gang-7",
}
MIXED = (
    {f"plain-{n}": f"value-{n}" for n in range(20)}
    | {f"nul-{n}\x00key": f"nul\x00value\x00{n}" for n in range(10)}
    | {f"control-{n}": "".join(map(chr, range(32))) for n in range(5)}
    | {f"ключ-{n}-鍵-🔑": f"значение-{n}-値-🚀" for n in range(10)}
    | {f"empty-{n}": "" for n in range(8)}
    | {"": "the empty key", "bigfleet.lucy.sh/assigned-group": "a\x00b"}
)

texts = st.text(st.characters(exclude_categories=["Cs"]))
metadata_maps = st.dictionaries(texts, texts, max_size=60)
clusters = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=253)
user_maps = st.dictionaries(
    st.text(string.ascii_lowercase + "-_.", min_size=1, max_size=40).map(lambda key: f"u{key}"),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=256),
    max_size=50,
)


def born(user_tags: Mapping[str, str] | None = None) -> dict[str, str]:
    return birth_tags(
        "azure/eastus",
        "azure-eastus-od-d4s-v5-1-000",
        OPERATION,
        CapacityType.SPOT,
        user_tags or {},
    )


def marks_of(held: Mapping[str, str]) -> Marks:
    marks = Marks.of({"tags": dict(held)})
    assert marks is not None
    return marks


def incompressible(size: int) -> str:
    state, drawn = 1, []
    for _ in range(size):
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        drawn.append(string.ascii_letters[state >> 33 & 31])
    return "".join(drawn)


def together(held: Mapping[str, str]) -> int:
    return sum(len(key) + len(value) for key, value in held.items())


def test_tags_at_birth_say_who_what_and_why() -> None:
    assert born({"team": "ml"}) == {
        "team": "ml",
        "bigfleet-managed": "true",
        "bigfleet-owner": "azure/eastus",
        "bigfleet-machine-id": "azure-eastus-od-d4s-v5-1-000",
        "bigfleet-operation": OPERATION,
        "bigfleet-capacity": "spot",
    }


def test_a_user_tag_never_stands_in_for_one_of_ours() -> None:
    held = born({"BigFleet-Owner": "somebody", "team": "ml"})
    assert "BigFleet-Owner" not in held
    assert marks_of(held).owner == "azure/eastus"


def test_marks_are_read_whatever_the_case_of_the_names() -> None:
    held = {key.upper(): value for key, value in born().items()}
    assert marks_of(held | {"BIGFLEET-CLUSTER": "Prod-A"}) == Marks(
        owner="azure/eastus",
        machine_id="azure-eastus-od-d4s-v5-1-000",
        operation_id=OPERATION,
        capacity=CapacityType.SPOT,
        cluster="Prod-A",
    )


@pytest.mark.parametrize(
    "resource", [{}, {"tags": None}, {"tags": {}}, {"tags": {"bigfleet-managed": "false"}}]
)
def test_what_is_not_marked_has_no_marks(resource: dict) -> None:
    assert Marks.of(resource) is None


def test_what_the_go_provider_made_has_marks_but_no_owner() -> None:
    marks = marks_of(
        {"bigfleet-managed": "true", "bigfleet-machine-id": "a/b", "bigfleet-capacity": "on_demand"}
    )
    assert (marks.owner, marks.machine_id, marks.capacity) == ("", "a/b", CapacityType.ON_DEMAND)


@pytest.mark.parametrize(
    "metadata", [REAL, MIXED, {}, {"": ""}], ids=["real", "mixed", "empty", "nil"]
)
def test_what_a_shard_really_sends_fits_and_comes_back(metadata: dict[str, str]) -> None:
    held = born({"team": "ml", "cost": "4711"})
    held |= binding_tags("prod", metadata, OPERATION, held)
    assert metadata_of(held) == metadata
    assert check_tags(held, VM) == held


@given(cluster=clusters, metadata=metadata_maps, user_tags=user_maps)
def test_a_binding_comes_back_whole_or_is_known_to_be_left_out(
    cluster: str, metadata: dict[str, str], user_tags: dict[str, str]
) -> None:
    before = born(user_tags)
    after = before | binding_tags(cluster, metadata, OPERATION, before)
    assert metadata_of(after) in (metadata, None)
    found = marks_of(after).cluster
    assert found == cluster or (found.startswith("sha256:") and not cluster.isascii())
    if len(before) <= tags.MAX_USER_TAGS + 5 and together(before) <= tags.MAX_USER_CHARACTERS:
        assert together(after) <= tags.MAX_TOGETHER
        check_tags(after, VM)


@given(size=st.integers(0, 4_000))
def test_room_is_used_to_the_end_and_never_beyond(size: int) -> None:
    metadata = {"k": incompressible(size)}
    before = born()
    after = before | binding_tags("prod", metadata, OPERATION, before)
    assert together(after) <= tags.MAX_TOGETHER
    check_tags(after, VM)
    if size <= 1_500:
        assert metadata_of(after) == metadata
    if size >= 2_000:
        assert metadata_of(after) is None
        assert after["bigfleet-meta"] == f"1 {OPERATION} left-out"


def test_few_free_names_leave_the_metadata_out_and_keep_the_cluster() -> None:
    before = born({f"u{number}": "" for number in range(43)})
    after = before | binding_tags("prod", REAL, OPERATION, before)
    assert len(after) == tags.MAX_TAGS
    assert marks_of(after).cluster == "prod"
    assert metadata_of(after) is None


def test_tags_of_others_without_end_leave_the_cluster_alone() -> None:
    before = born({f"u{number}": "v" * 240 for number in range(7)})
    before |= binding_tags("old", REAL, OPERATION, born())
    after = before | binding_tags("prod", REAL, LATER, before)
    assert marks_of(after).cluster == "prod"
    assert metadata_of(after) is None


def test_our_own_longest_tags_fit_beside_all_that_the_operator_may_set() -> None:
    names = [f"u{number:02}" for number in range(tags.MAX_USER_TAGS)]
    room = tags.MAX_USER_CHARACTERS - sum(map(len, names))
    lengths = [min(256, max(0, room - 256 * number)) for number in range(len(names))]
    user_tags = {name: "v" * length for name, length in zip(names, lengths, strict=True)}
    assert together(user_tags) == tags.MAX_USER_CHARACTERS
    before = birth_tags("o" * 256, "m" * 60, LATER, CapacityType.ON_DEMAND, user_tags)
    after = before | binding_tags("c" * 256, MIXED, LATER, before)
    assert after["bigfleet-meta"].endswith("left-out")
    assert together(after) <= tags.MAX_TOGETHER


@given(first=metadata_maps, second=metadata_maps)
def test_a_second_binding_shows_nothing_of_the_first(
    first: dict[str, str], second: dict[str, str]
) -> None:
    held = born()
    held |= binding_tags("one", first, OPERATION, held)
    held |= binding_tags("two", second, LATER, held)
    assert metadata_of(held) in (second, None)
    fresh = born() | binding_tags("two", second, LATER, born())
    assert {key: value for key, value in held.items() if value} == {
        key: value for key, value in fresh.items() if value
    } or metadata_of(held) is None


def test_the_same_binding_again_asks_for_what_is_there() -> None:
    held = born()
    held |= binding_tags("prod", MIXED, OPERATION, held)
    assert binding_tags("prod", MIXED, OPERATION, held).items() <= held.items()


def test_a_header_of_an_earlier_binding_does_not_speak_for_a_later_one() -> None:
    held = born() | binding_tags("one", REAL, OPERATION, born())
    assert metadata_of(held | {"bigfleet-cluster": "two"}) is None


@given(data=st.data())
def test_any_damage_makes_metadata_unknown(data: st.DataObject) -> None:
    bound = binding_tags("prod", MIXED, OPERATION, born())
    key = data.draw(st.sampled_from(sorted(bound)))
    value = bound[key]
    match data.draw(st.sampled_from(["gone", "emptied", "cut", "changed"])):
        case "gone":
            del bound[key]
        case "emptied":
            bound[key] = ""
        case "cut":
            bound[key] = value[: data.draw(st.integers(0, len(value) - 1))]
        case _:
            at = data.draw(st.integers(0, len(value) - 1))
            other = data.draw(st.sampled_from([one for one in "aB7- " if one != value[at]]))
            bound[key] = value[:at] + other + value[at + 1 :]
    assert metadata_of(born() | bound) is None


@given(held=st.dictionaries(st.sampled_from(["bigfleet-meta", "bigfleet-meta-00"]), texts))
def test_nonsense_in_our_tags_is_no_metadata(held: dict[str, str]) -> None:
    assert metadata_of(held) is None


@pytest.mark.parametrize(
    "content",
    [
        b"no archive",
        zlib.compress(b"\x7a\x05\x0a\x03ab"),
        zlib.compress(b"\x7a\x04\x0a\x01\xff\x12\x00"),
        zlib.compress(b"k" * 600)[:-6],
        zlib.compress(bytes(MAX_METADATA_BYTES + 2)),
    ],
    ids=["no archive", "cut entry", "no text", "cut archive", "too large"],
)
def test_a_correct_checksum_over_nonsense_is_no_metadata(content: bytes) -> None:
    text = base64.urlsafe_b64encode(content).decode().rstrip("=")
    chunks = [text[start : start + 256] for start in range(0, len(text), 256)]
    checksum = zlib.crc32("\n".join([OPERATION, str(len(chunks)), "prod", text]).encode())
    held = {
        "bigfleet-cluster": "prod",
        "bigfleet-meta": f"1 {OPERATION} {len(chunks)} {checksum:08x}",
    } | {f"bigfleet-meta-{number:02}": chunk for number, chunk in enumerate(chunks)}
    assert metadata_of(held) is None


@given(metadata=metadata_maps)
def test_unbinding_leaves_what_was_there_at_birth(metadata: dict[str, str]) -> None:
    before = born({"bigfleet-metadata": "a user's", "bigfleet-meta-xy": "too"})
    bound = {
        key.upper(): value for key, value in binding_tags("c", metadata, OPERATION, before).items()
    }
    removed = tags.unbinding_tags(before | bound)
    assert removed == bound


@pytest.mark.parametrize("cluster", ["prod", "a b", "100%", "100%25", "\x00", " edge ", "é" * 126])
def test_a_cluster_id_comes_back_as_it_was(cluster: str) -> None:
    held = born() | binding_tags(cluster, {}, OPERATION, born())
    assert marks_of(held).cluster == cluster
    assert held["bigfleet-cluster"].isprintable()


@pytest.mark.parametrize("cluster", ["c" * 257, "\x01" * 200, "sha256:feed"])
def test_a_cluster_id_that_is_no_tag_keeps_the_machine_bound_under_its_hash(cluster: str) -> None:
    held = born() | binding_tags(cluster, REAL, OPERATION, born())
    assert marks_of(held).cluster.startswith("sha256:")
    assert marks_of(held).cluster != cluster
    assert metadata_of(held) == REAL
