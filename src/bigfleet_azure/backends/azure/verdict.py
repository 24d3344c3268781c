"""What a refusal of Azure means to us, as facts.

Which refusal means what is the table in `error_table`; reading the table is `errors`'.
"""

from dataclasses import dataclass
from enum import StrEnum

from bigfleet_azure.domain.errors import FailureKind


class Scope(StrEnum):
    """How far a lack reaches beyond the offer that met it."""

    NONE = "none"
    SIZE = "size"
    SIZE_PRIORITY = "size_priority"
    SIZE_ZONE = "size_zone"
    SIZE_ZONE_PRIORITY = "size_zone_priority"
    REGIONAL = "regional"
    FAMILY = "family"
    REGION_SPOT = "region_spot"
    REGION_ON_DEMAND = "region_on_demand"
    SUBNET = "subnet"
    PUBLIC_IP = "public_ip"


SCOPE_MEANINGS = {
    Scope.NONE: "Nobody, or nobody beyond the offering itself.",
    Scope.SIZE: "The size, everywhere.",
    Scope.SIZE_PRIORITY: "The size with this capacity type, in all zones; of an offering without a "
    "zone, where no zone is asked for.",
    Scope.SIZE_ZONE: "The size in this zone, with every capacity type.",
    Scope.SIZE_ZONE_PRIORITY: "The size in this zone with this capacity type.",
    Scope.REGIONAL: "The size where no zone is asked for: a region without room says nothing about "
    "its zones.",
    Scope.FAMILY: "Sizes of the family with this capacity type and at least as many vCPUs.",
    Scope.REGION_SPOT: "All Spot capacity of the region.",
    Scope.REGION_ON_DEMAND: "All capacity of the region that is not Spot.",
    Scope.SUBNET: "Everything in the subnet.",
    Scope.PUBLIC_IP: "Everything that gets a public IP address.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Figures of a quota as a refusal told them; None where it did not.

    Attributes:
        name: which quota, e.g. `standardDASv5Family Cores`; "" when it is not named.
        limit, usage, required: what may be used, what is used, what was asked for beside it.
    """

    name: str = ""
    limit: int | None = None
    usage: int | None = None
    required: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a refusal means.

    Attributes:
        kind: decides between waiting and FAILED.
        hint: what to do now, for people; "" when there is nothing but to wait.
        code: Azure's code that decided.
        scope: who else is concerned.
        seconds: how long the lack is believed; 0 when nothing is short.
        spot_seconds: the same for Spot where it differs.
        busy_seconds: wait before the next try where Azure named none.
        quota: figures, when the refusal had them.
        exists: the VM that was to be made exists: read it, and adopt it or not.
        gone: what the call asked about does not exist. Only ARM's own word for it counts.
        deleting: the VM, or all of its group, is being deleted.
        names_taken: a part's name cannot be used again; the next try needs new names.
        credential: our identity is the trouble, for every call alike; no machine is to blame.
    """

    kind: FailureKind
    hint: str = ""
    code: str = ""
    scope: Scope = Scope.NONE
    seconds: float = 0.0
    spot_seconds: float | None = None
    busy_seconds: float | None = None
    quota: Quota | None = None
    exists: bool = False
    gone: bool = False
    deleting: bool = False
    names_taken: bool = False
    credential: bool = False

    def seconds_for(self, *, spot: bool) -> float:
        """How long the lack is believed for an offer that is Spot or is not."""
        if spot and self.spot_seconds is not None:
            return self.spot_seconds
        return self.seconds
