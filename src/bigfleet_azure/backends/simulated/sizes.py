"""What the simulated region publishes about a size: it has no list to ask, so it reads the name."""

from bigfleet_azure.backends import sizes
from bigfleet_azure.domain.offering import Facts, Offer, region_of
from bigfleet_azure.domain.quantity import GIB, allocatable

_MAX_PODS = 110
"""The kubelet's default."""

_DISK_GIB = 128
"""OS disk of a node, AKS's default; a node keeps its ephemeral storage there."""


def facts(offer: Offer) -> Facts:
    """What the simulated region publishes about an offer.

    Raises:
        ValueError: the size's name cannot be read.
    """
    size = sizes.size_of(offer.vm_size)
    usable = allocatable(
        vcpus=size.vcpus,
        memory_bytes=int(size.memory_gib * GIB),
        disk_bytes=_DISK_GIB * GIB,
        max_pods=_MAX_PODS,
        gpus=size.gpus,
    )
    return sizes.facts(offer, size, region=region_of(offer.zone), allocatable=usable)
