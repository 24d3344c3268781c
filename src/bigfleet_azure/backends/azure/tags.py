"""The tags that say what belongs to whom, and to which cluster a machine is bound.

They are the only memory that survives the loss of the store. How they are written to Azure, and
what is done about what they say, belongs elsewhere.

The binding is `bigfleet-cluster`, a header `bigfleet-meta`, and the shard metadata, packed and cut
into `bigfleet-meta-00` and on. The header names version, operation, number of chunks and a
checksum over all of that and the cluster. Merging tags only adds: what an earlier binding had
more is emptied by the same write, is beyond the count, and fits no other checksum.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.limits import MAX_METADATA_BYTES
from bigfleet_azure.domain.metadata import pack, unpack

Json = dict[str, Any]

MANAGED = "bigfleet-managed"
OWNER = "bigfleet-owner"
MACHINE = "bigfleet-machine-id"
OPERATION = "bigfleet-operation"
CAPACITY = "bigfleet-capacity"
CLUSTER = "bigfleet-cluster"
HEADER = "bigfleet-meta"

MAX_TAGS = 50
MAX_VALUE = 256
"""Tags on one resource, characters of one value (azure-facts section 4.3)."""

MAX_TOGETHER = 2_000
"""Characters of all names and values on a VM; Azure's documented end is 2,048."""

MAX_USER_TAGS = 40
MAX_USER_CHARACTERS = 1_100
"""What the operator's own tags may take, so that ours always fit: owner and cluster at their
longest are 822 characters with their names, in 7 tags. The rest is for metadata."""

_VERSION = "1"
_LEFT_OUT = "left-out"
_HASHED = "sha256:"
_CHUNK = re.compile(rf"{HEADER}-[0-9]{{2}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What the tags of a resource say about it.

    Attributes:
        owner: the daemon that it belongs to; "" on what the Go provider made.
        machine_id: the machine that it is, or is a part of.
        operation_id: the Create that made it.
        capacity: None when the tag is missing or unknown.
        cluster: what the machine is bound to; "" when it is not. The id itself, or `sha256:` and
            a digest where the id cannot be a tag: still bound, to a name that no shard knows.
    """

    owner: str
    machine_id: str
    operation_id: str
    capacity: CapacityType | None
    cluster: str

    @classmethod
    def of(cls, resource: Json) -> "Marks | None":
        """Read from a resource as Azure shows it; None when it is not marked as BigFleet's."""
        tags = _lowered(resource.get("tags") or {})
        if tags.get(MANAGED, "").lower() != "true":
            return None
        capacities = {one.tag: one for one in CapacityType}
        return cls(
            owner=tags.get(OWNER, ""),
            machine_id=tags.get(MACHINE, ""),
            operation_id=tags.get(OPERATION, ""),
            capacity=capacities.get(tags.get(CAPACITY, "").lower()),
            cluster=unquote(tags.get(CLUSTER, "")),
        )


def birth_tags(
    owner: str,
    machine_id: str,
    operation_id: str,
    capacity: CapacityType,
    user_tags: Mapping[str, str],
) -> dict[str, str]:
    """The tags that VM, interface and address are born with; ours win over the operator's."""
    ours = {
        MANAGED: "true",
        OWNER: owner,
        MACHINE: machine_id,
        OPERATION: operation_id,
        CAPACITY: capacity.tag,
    }
    return {key: value for key, value in user_tags.items() if key.lower() not in ours} | ours


def binding_tags(
    cluster: str, metadata: Mapping[str, str], operation_id: str, existing: Mapping[str, str]
) -> dict[str, str]:
    """The tags to be merged into those of a VM when it is bound.

    Metadata that does not fit is left out and the header says so. The cluster is always there.

    Args:
        existing: the VM's tags now, all of which stay.
    """
    name = _cluster_tag(cluster)
    emptied = dict.fromkeys((key.lower() for key in unbinding_tags(existing)), "")
    bound = emptied | {CLUSTER: name}
    for metadata_tags in (
        _metadata_tags(metadata, operation_id, name),
        {HEADER: f"{_VERSION} {operation_id} {_LEFT_OUT}"},
    ):
        if _fits(_lowered(existing) | bound | metadata_tags):
            return bound | metadata_tags
    return bound


def metadata_of(tags: Mapping[str, str]) -> dict[str, str] | None:
    """The shard metadata that a VM's tags hold.

    None when it is not there: left out, damaged, changed by others, or of another binding.
    """
    known = _lowered(tags)
    match known.get(HEADER, "").split(" "):
        case [version, operation_id, count, checksum] if version == _VERSION and count.isdecimal():
            numbers = range(min(int(count), MAX_TAGS))
        case _:
            return None
    text = "".join(known.get(f"{HEADER}-{number:02}", "") for number in numbers)
    if _checksum(operation_id, count, known.get(CLUSTER, ""), text) != checksum:
        return None
    return _unpacked(text)


def bound_by(tags: Mapping[str, str]) -> str:
    """The Configure that bound a VM, by its tags; "" when it is not bound or they do not say."""
    known = _lowered(tags)
    if not known.get(CLUSTER):
        return ""
    _, _, rest = known.get(HEADER, "").partition(" ")
    return rest.partition(" ")[0]


def unbinding_tags(existing: Mapping[str, str]) -> dict[str, str]:
    """The tags of a VM that bind it, as they are: what is to be deleted when it is free again.

    Names and values, because Azure's deletion takes pairs.
    """
    return {key: value for key, value in existing.items() if _binds(key.lower())}


def _metadata_tags(
    metadata: Mapping[str, str], operation_id: str, cluster_tag: str
) -> dict[str, str]:
    packed = zlib.compress(pack(metadata), 9) if metadata else b""
    text = base64.urlsafe_b64encode(packed).decode().rstrip("=")
    chunks = [text[start : start + MAX_VALUE] for start in range(0, len(text), MAX_VALUE)]
    checksum = _checksum(operation_id, str(len(chunks)), cluster_tag, text)
    return {HEADER: f"{_VERSION} {operation_id} {len(chunks)} {checksum}"} | {
        f"{HEADER}-{number:02}": chunk for number, chunk in enumerate(chunks)
    }


def _binds(key: str) -> bool:
    return key in (CLUSTER, HEADER) or _CHUNK.fullmatch(key) is not None


def _lowered(tags: Mapping[str, str]) -> dict[str, str]:
    """By lower-case name: names have no case, and others may have written them."""
    return {key.lower(): str(value) for key, value in tags.items()}


def _fits(tags: Mapping[str, str]) -> bool:
    together = sum(_length(key) + _length(value) for key, value in tags.items())
    return len(tags) <= MAX_TAGS and together <= MAX_TOGETHER


def _length(text: str) -> int:
    """Azure counts UTF-16 units, of which rare characters have two."""
    return len(text.encode("utf-16-le")) // 2


def _cluster_tag(cluster: str) -> str:
    """The cluster id as it is, or quoted where it is not plain text, or its hash."""
    plain = cluster.isprintable() and cluster == cluster.strip() and "%" not in cluster
    value = cluster if plain else quote(cluster, safe="")
    if _length(value) <= MAX_VALUE and not value.startswith(_HASHED):
        return value
    return _HASHED + hashlib.sha256(cluster.encode()).hexdigest()


def _checksum(*covered: str) -> str:
    return format(zlib.crc32("\n".join(covered).encode()), "08x")


def _unpacked(text: str) -> dict[str, str] | None:
    if not text:
        return {}
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        opener = zlib.decompressobj()
        content = opener.decompress(packed, MAX_METADATA_BYTES + 1)
        return unpack(content) if opener.eof else None
    except (ValueError, IndexError, zlib.error):
        return None
