"""What a refusal for lack of capacity or quota says about other offerings.

Which refusal has which scope, and for how long it is believed, is `errors`'; here a scope becomes
a `Shortage`: what is short, and who else needs it. Equal keys are one block.
"""

from collections.abc import Callable

from bigfleet_azure.backends.azure.fitting import zone_of
from bigfleet_azure.backends.azure.options import VmProfile
from bigfleet_azure.backends.azure.sizes import SizeTable
from bigfleet_azure.backends.azure.verdict import Quota, Scope
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer
from bigfleet_azure.domain.shortage import Shortage

ProfileOf = Callable[[Offer], VmProfile]
Trait = Callable[[Offer, VmProfile, str], str]
"""Something two offers can have in common; told by offer, profile and location."""


def shortage(
    scope: Scope,
    seconds: float,
    offer: Offer,
    code: str,
    *,
    sizes: SizeTable,
    profile_of: ProfileOf,
    quota: Quota | None = None,
) -> Shortage | None:
    """What is short, once `offer` was refused. It covers `offer` itself.

    Args:
        seconds: how long it is believed.
        code: Azure's code of the refusal, for the text.
        quota: the refusal's figures, for the text.

    Returns:
        None when the scope says nothing beyond the offer, or its size's family is not known.
    """
    if scope is Scope.NONE:
        return None
    if scope is Scope.FAMILY:
        return _family(seconds, offer, _told(code, quota), sizes, profile_of)
    traits = _TRAITS[scope]

    def common(one: Offer) -> list[str]:
        profile = profile_of(one)
        return [trait(one, profile, sizes.location) for trait in traits]

    mine = common(offer)
    key = " ".join(mine)
    return Shortage(
        key=key,
        text=f"{_told(code, quota)}: short of {key}",
        seconds=seconds,
        covers=lambda other: common(other) == mine,
    )


def pool_of(offer: Offer, profile: VmProfile) -> str:
    """Where an offer's room and core quota come from: `spot`, `on_demand` or `reserved <group>`.

    Reserved capacity without a reservation group is plain on-demand. A reservation took its cores
    out of the quota when it was made, and keeps its room: neither what is left of the quota nor
    the room for on-demand VMs is short for the VMs placed in it. What is short in one group says
    nothing about another.
    """
    if offer.capacity_type is CapacityType.SPOT:
        return "spot"
    group = profile.capacity_reservation_group_id
    if offer.capacity_type is CapacityType.RESERVED and group:
        return f"reserved {group.lower()}"
    return "on_demand"


def quota_cores(offer: Offer, sizes: SizeTable) -> int | None:
    """Cores that a VM of the offer takes from its quotas; None while its size is not known.

    For sizes that show fewer cores than their hardware has Azure's pages do not say which of the
    two counts. The smaller is taken, so that no offering is withheld that could be had.
    """
    size = sizes.get(offer.vm_size)
    return None if size is None else size.vcpus_available


def family_of(offer: Offer, sizes: SizeTable) -> str:
    """Name of the core quota of the offer's size, in lower case; "" while it is not known."""
    size = sizes.get(offer.vm_size)
    return "" if size is None else size.family.lower()


def _family(
    seconds: float, offer: Offer, told: str, sizes: SizeTable, profile_of: ProfileOf
) -> Shortage | None:
    """A core quota that leaves too little for this many cores may leave enough for fewer."""
    family, cores = family_of(offer, sizes), quota_cores(offer, sizes)
    if not family or cores is None:
        return None
    pool = pool_of(offer, profile_of(offer))

    def covers(other: Offer) -> bool:
        return (
            family_of(other, sizes) == family
            and pool_of(other, profile_of(other)) == pool
            and (quota_cores(other, sizes) or 0) >= cores
        )

    # Each count is a key of its own, so that the strictest refusal stands for its own time.
    key = f"quota {family} {pool} {cores}"
    return Shortage(
        key=key,
        text=f"{told}: the quota {family} has no {cores} cores left ({pool})",
        seconds=seconds,
        covers=covers,
    )


def _told(code: str, quota: Quota | None) -> str:
    if quota is None or quota.limit is None or quota.usage is None:
        return code
    return f"{code} ({quota.usage} of {quota.limit} used)"


def _size(offer: Offer, _profile: VmProfile, _location: str) -> str:
    return f"size {offer.vm_size.lower()}"


def _pool(offer: Offer, profile: VmProfile, _location: str) -> str:
    return pool_of(offer, profile)


def _market(offer: Offer, profile: VmProfile, _location: str) -> str:
    """Spot and on-demand VMs share their room; a reservation has its own."""
    pool = pool_of(offer, profile)
    return pool if pool.startswith("reserved") else "unreserved"


def _place(offer: Offer, profile: VmProfile, location: str) -> str:
    """The zone; a regional VM is in none, and its room says nothing about any zone's."""
    try:
        zone = zone_of(offer, profile, location)
    except ValueError:
        return f"zone {offer.zone.lower()}"
    return f"zone {zone}" if zone else "regional"


def _scale(offer: Offer, profile: VmProfile, location: str) -> str:
    regional = _place(offer, profile, location) == "regional"
    return "regional" if regional else "any zone"


def _region_cores(offer: Offer, profile: VmProfile, _location: str) -> str:
    return f"quota of all {pool_of(offer, profile)} cores"


def _subnet(_offer: Offer, profile: VmProfile, _location: str) -> str:
    return f"addresses in {profile.subnet_id.lower()}"


def _public_ip(_offer: Offer, profile: VmProfile, _location: str) -> str:
    return "public IP addresses" if profile.public_ip else "nothing"


_TRAITS: dict[Scope, tuple[Trait, ...]] = {
    Scope.SIZE: (_size,),
    Scope.SIZE_PRIORITY: (_size, _pool, _scale),
    Scope.SIZE_ZONE: (_size, _market, _place),
    Scope.SIZE_ZONE_PRIORITY: (_size, _pool, _place),
    Scope.REGIONAL: (_size, _market, _place),
    Scope.REGION_SPOT: (_region_cores,),
    Scope.REGION_ON_DEMAND: (_region_cores,),
    Scope.SUBNET: (_subnet,),
    Scope.PUBLIC_IP: (_public_ip,),
}
"""What offers have in common that are short of the same thing."""
