"""The allow-list: what real answers do against their own description.

Each entry is seen in a recording, or it must go; a test holds the list to that. It is for answers
only: requests are never excused.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.support.arm.truth.walker import MISSING, NULL, TYPE, UNKNOWN, Fault


@dataclass(frozen=True)
class Allowed:
    """One excused kind of fault, on some routes, at some places."""

    kind: str
    route: str
    place: str
    reason: str

    def covers(self, route: str, fault: Fault) -> bool:
        # Brackets mean a character class to fnmatch; here they are a position in a list.
        place, pattern = (text.replace("[]", "#") for text in (fault.place, self.place))
        return (
            fault.kind == self.kind
            and fnmatchcase(route, self.route)
            and fnmatchcase(place, pattern)
        )


_NIC = "the network provider answers it; nic-update-list-delete.json, nic-list-subscription.json"
_SKU = "written as null where it has no value; resource-skus-eastus-skewer.json"
_CASE = "spelt `Name` in most answers and `name` in some; the descriptions know one spelling each"

ALLOWED: tuple[Allowed, ...] = (
    Allowed(
        TYPE,
        "graph.query",
        "$.data",
        "described as an object, whichever form was asked for; resourcegraph-objectarray.json",
    ),
    Allowed(UNKNOWN, "nic.*", "*.kind", _NIC),
    Allowed(UNKNOWN, "nic.*", "*.properties.allowPort25Out", _NIC),
    Allowed(UNKNOWN, "nic.list-all", "*.managedBy", _NIC),
    Allowed(UNKNOWN, "nic.list-all", "*.properties.bareMetalServer", _NIC),
    Allowed(UNKNOWN, "nic.list-all", "*.properties.linkedResourceType", _NIC),
    Allowed(UNKNOWN, "network.usages", "$.value[].isAdjustable", "network-usages-westus.json"),
    Allowed(NULL, "skus", "$.value[].kind", _SKU),
    Allowed(NULL, "skus", "$.value[].capacity", _SKU),
    Allowed(NULL, "skus", "$.value[].costs", _SKU),
    Allowed(NULL, "skus", "$.value[].apiVersions", _SKU),
    Allowed(NULL, "skus", "$.value[].locationInfo[].zoneDetails[].name", _SKU),
    Allowed(UNKNOWN, "skus", "$.value[].locationInfo[].zoneDetails[].Name", _CASE),
    Allowed(UNKNOWN, "skus", "$.value[].locationInfo[].zoneDetails[].name", _CASE),
    Allowed(
        NULL,
        "vm.instance-view",
        "$.patchStatus.*.error",
        "the vendor's own example of an instance view; vendor-vm-get-list.json",
    ),
    Allowed(
        MISSING,
        "vm.list*",
        "$.value[].resources[].location",
        "a list names the extensions of a VM by their id only; vm-list-subscription-location.json",
    ),
)


def allowance(route: str, fault: Fault) -> Allowed | None:
    """The entry that covers a fault of an answer, if there is one."""
    return next((entry for entry in ALLOWED if entry.covers(route, fault)), None)
