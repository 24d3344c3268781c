"""What each call to ARM is charged to, and how large those buckets are.

Facts only: nothing is counted here. Calls have the names that `clients` gives them.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A token bucket: how many tokens it holds, and how many come back in a second."""

    tokens: float
    a_second: float


ARM = {
    "reads": Size(tokens=250, a_second=25),
    "writes": Size(tokens=200, a_second=10),
    "deletes": Size(tokens=200, a_second=10),
}
"""ARM's front door, for one principal in one subscription and region (azure-facts section 4.1)."""

ALL_PRINCIPALS = 15
"""All principals of a subscription together have so many times that (azure-facts section 4.1)."""

_VM_WRITES = Size(tokens=1500, a_second=500 / 60)

SHARED = {
    "PutVM": _VM_WRITES,
    "UpdateVM": _VM_WRITES,
    "DeleteVM": _VM_WRITES,
    "LowCostGet": Size(tokens=24000, a_second=8000 / 60),
    "HighCostGet": Size(tokens=90, a_second=30 / 60),
    "GetOperation": Size(tokens=15000, a_second=5000 / 60),
    "GetSubscriptionInfo": Size(tokens=360, a_second=120 / 60),
}
"""Compute, for a subscription in a region (azure-facts section 4.2). HighCostGet is the smaller of
the two sizes that are documented. GetSubscriptionInfo's size is in recorded headers; its refill is
taken to be a third of it, as with all others."""

LARGER = {"HighCostGet": Size(tokens=900, a_second=300 / 60)}
"""The other documented size, believed once Azure tells of more tokens than the smaller one holds
(azure-facts section 4.2)."""

_ONE_VM = Size(tokens=12, a_second=4 / 60)

OF_ONE = {
    "PutVMResource": _ONE_VM,
    "UpdateVMResource": _ONE_VM,
    "DeleteVMResource": _ONE_VM,
    "LowCostGetResource": Size(tokens=36, a_second=12 / 60),
    "GetOperationResource": Size(tokens=45, a_second=15 / 60),
}
"""Compute, for one VM or one operation (azure-facts section 4.2)."""

NETWORK = {
    "NetworkReads": Size(tokens=10_000, a_second=10_000 / 300),
    "NetworkWrites": Size(tokens=1_000, a_second=1_000 / 300),
}
"""Network, for a subscription in a region; counted in windows of 5 minutes (azure-facts section
4.3), which an even refill never exceeds by more than one bucket."""

GRAPH = {"ResourceGraph": Size(tokens=15, a_second=15 / 5)}
"""Resource Graph's quota of one user, which it counts itself and tells in headers of its own: 15
queries in 5 seconds (recorded, azure-wire/resourcegraph-objectarray.json)."""

SIZES: Mapping[str, Size] = {
    **SHARED,
    **NETWORK,
    **GRAPH,
    **ARM,
    **{
        f"global-{kind}": Size(
            tokens=size.tokens * ALL_PRINCIPALS, a_second=size.a_second * ALL_PRINCIPALS
        )
        for kind, size in ARM.items()
    },
}
"""Every bucket that is there once."""

RESERVED_SHARE = {"reads": 0.2}
"""Share of a bucket that polls leave to all else, so that no storm of them holds up the GET behind
a refused PUT or the list of a reconcile pass. Ours."""

POLLS = frozenset({"compute.operation", "network.operation", "network.result"})


def _arm(kind: str) -> tuple[str, ...]:
    return (kind, f"global-{kind}")


def _compute(policy: str, kind: str, *calls: str) -> dict[str, tuple[str, ...]]:
    own = f"{policy}Resource"
    buckets = ((own,) if own in OF_ONE else ()) + (policy, *_arm(kind))
    return dict.fromkeys(calls, buckets)


def _network(policy: str, kind: str, *calls: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(calls, (policy, *_arm(kind)))


def _plain(kind: str, *calls: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(calls, _arm(kind))


CHARGES: Mapping[str, tuple[str, ...]] = {
    **_compute("PutVM", "writes", "vm.put"),
    **_compute("UpdateVM", "writes", "vm.patch", "vm.start", "vm.restart", "vm.power-off"),
    **_compute("UpdateVM", "writes", "vm.reimage", "extension.put"),
    **_compute("UpdateVM", "deletes", "extension.delete"),
    **_compute("DeleteVM", "deletes", "vm.delete"),
    **_compute("DeleteVM", "writes", "vm.deallocate", "vm.simulate-eviction"),
    **_compute("LowCostGet", "reads", "vm.get", "vm.instance-view"),
    **_compute("LowCostGet", "reads", "extension.get", "extension.list"),
    **_compute("LowCostGet", "writes", "vm.boot-diagnostics"),
    **_compute("HighCostGet", "reads", "vm.list", "vm.list-all", "vm.list-location"),
    **_compute("GetOperation", "reads", "compute.operation"),
    **_compute("GetSubscriptionInfo", "reads", "compute.usages"),
    **_network("NetworkReads", "reads", "nic.list", "nic.list-all", "nic.get"),
    **_network("NetworkReads", "reads", "ip.list", "ip.list-all", "ip.get"),
    **_network("NetworkReads", "reads", "network.operation", "network.result"),
    **_network("NetworkReads", "reads", "network.usages", "subnet.get", "vnet.get"),
    **_network("NetworkWrites", "writes", "nic.put", "nic.patch", "ip.put", "ip.patch"),
    **_network("NetworkWrites", "deletes", "nic.delete", "ip.delete"),
    **_plain("reads", "skus", "disk.list", "disk.list-all", "disk.get", "image.get"),
    **_plain("reads", "gallery-version.get", "gallery-image.get"),
    **_plain("reads", "platform-image.list", "platform-image.get", "tags.get"),
    **_plain("reads", "group.get", "subscription.get", "provider.get", "resource.get"),
    "graph.query": tuple(GRAPH),
    **_plain("writes", "tags.put", "tags.patch"),
    **_plain("deletes", "tags.delete", "disk.delete"),
}
"""The buckets of each call, the narrowest first: whoever waits at a wider one may then hold tokens
of narrower ones without holding up any call that needs only those."""
