"""The fault selectors of the certification lane: clusters and slots that go wrong on request.

They are part of `--fake-faults` only; without it these names mean nothing.
"""

from enum import StrEnum

from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer


class Fault(StrEnum):
    """What goes wrong with a cluster whose id is this word, or begins with it and a dash."""

    ERROR = "fault-error"
    """Configure fails for good."""

    TIMEOUT = "fault-timeout"
    """Configure never ends."""

    SLOW_OK = "fault-slow-ok"
    """Configure succeeds, but after its deadline."""

    DRAIN_ERROR = "fault-drain-error"
    """Configure succeeds; Drain fails for good."""

    READINESS_BLOCK = "fault-readiness-block"
    """The blob is handed over, and the node never becomes Ready."""


CREATE_LABEL = "conformance.fault/create"
"""Offers that carry this label with the value `error` cannot be created."""

CREATE_PREFIX = "faultcreate"
CREATE_SLOTS = 8
_CREATE_VALUE = "error"


def fault_of(cluster: str) -> Fault | None:
    """The fault that a cluster id asks for."""
    for fault in Fault:
        if cluster == fault or cluster.startswith(f"{fault}-"):
            return fault
    return None


def fault_offers(zone: str) -> list[Offer]:
    """The slots `faultcreate-0` to `faultcreate-7`, whose Creates fail."""
    return [
        Offer(
            vm_size="Standard_D4s_v5",
            zone=zone,
            capacity_type=CapacityType.ON_DEMAND,
            count=CREATE_SLOTS,
            resources={"cpu": "1", "memory": "2Gi"},
            labels={CREATE_LABEL: _CREATE_VALUE},
            fixed_prefix=CREATE_PREFIX,
        )
    ]


def create_fails(offer: Offer) -> bool:
    """Whether an offer asks for its Creates to fail."""
    return offer.labels.get(CREATE_LABEL) == _CREATE_VALUE


def injected(what: str) -> BackendError:
    """The definite failure that a selector asked for."""
    return BackendError(
        FailureKind.INVALID, f"InjectedFault: {what} fails by request", code="InjectedFault"
    )
