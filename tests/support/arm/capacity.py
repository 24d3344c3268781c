"""Whether there is room for a VM: quotas and restrictions at the PUT, shortages there or later."""

from tests.support.arm.cloud import Cloud
from tests.support.arm.faults import Shortage
from tests.support.arm.skus import Size
from tests.support.arm.vms import DEALLOCATED, Vm
from tests.support.arm.wire import Json, Refusal, refusal

_GUIDANCE = (
    "Read more about improving likelihood of allocation success at "
    "http://aka.ms/allocation-guidance"
)
_ALLOCATION = {
    "AllocationFailed": "Allocation failed. We do not have sufficient capacity for the requested "
    f"VM size in this region. {_GUIDANCE}",
    "ZonalAllocationFailed": "Allocation failed. We do not have sufficient capacity for the "
    f"requested VM size in this zone. {_GUIDANCE}",
    "OverconstrainedZonalAllocationRequest": "Allocation failed. VM(s) with the following "
    "constraints cannot be allocated, because the condition is too restrictive. Please remove "
    "some constraints and try again. Constraints applied are:\n  - Availability Zone\n"
    "  - VM Size\n",
    "OverconstrainedAllocationRequest": "Allocation failed. VM(s) with the following constraints "
    "cannot be allocated, because the condition is too restrictive. Please remove some "
    "constraints and try again. Constraints applied are:\n - Networking Constraints (such as "
    "Accelerated Networking or IPv6)\n - VM Size\n",
}


def check_room(cloud: Cloud, vm: Vm, size: Size, addresses: int) -> None:
    """What is refused at the PUT."""
    _check_restrictions(cloud, vm, size)
    _check_quota(cloud, vm, size)
    _check_addresses(cloud, addresses)
    short = _shortage(cloud, vm)
    if short is not None and _at_put(short, vm):
        code = short.code or "SkuNotAvailable"
        raise sku_not_available(cloud, vm, code=code)


def allocation_error(cloud: Cloud, vm: Vm) -> Json | None:
    """What the operation fails with, if there is no room."""
    short = _shortage(cloud, vm)
    if short is None or _at_put(short, vm):
        return None
    code = short.code or ("AllocationFailed" if vm.zone == "none" else "ZonalAllocationFailed")
    return {"code": code, "message": _ALLOCATION.get(code, "Allocation failed.")}


def sku_not_available(cloud: Cloud, vm: Vm, *, code: str = "SkuNotAvailable") -> Refusal:
    return refusal(
        409,
        code,
        "The requested VM size for resource 'Following SKUs have failed for Capacity "
        f"Restrictions: {vm.size}' is currently not available in location '{cloud.location}'. "
        "Please try another size or deploy to a different location or different zone. See "
        "https://aka.ms/azureskunotavailable for details.",
    )


def _at_put(short: Shortage, vm: Vm) -> bool:
    if short.at_put is not None:
        return short.at_put
    return short.code == "SkuNotAvailable" or (vm.spot and short.code is None)


def _shortage(cloud: Cloud, vm: Vm) -> Shortage | None:
    priority = "Spot" if vm.spot else "Regular"
    for short in cloud.capacity.shortages:
        if short.matches(vm.size, vm.zone, priority) and _holders(cloud, short, vm) >= short.room:
            return short
    return None


def _holders(cloud: Cloud, short: Shortage, but: Vm) -> int:
    """VMs that take the room already."""
    count = 0
    for each in cloud.world.of_type("Microsoft.Compute/virtualMachines"):
        assert isinstance(each, Vm)
        doomed = each.shell or (each.operation is not None and each.operation.error is not None)
        holds = not doomed and each.power != DEALLOCATED and each is not but
        priority = "Spot" if each.spot else "Regular"
        count += holds and short.matches(each.size, each.zone, priority)
    return count


def _check_restrictions(cloud: Cloud, vm: Vm, size: Size) -> None:
    for restriction in size.restrictions:
        zones = restriction["restrictionInfo"].get("zones")
        if restriction["type"] == "Location" or vm.zone in (zones or []):
            zone = "" if vm.zone == "none" else vm.zone
            raise refusal(
                409,
                "SkuNotAvailable",
                f"The requested size for resource '{vm.id}' is currently not available in "
                f"location '{cloud.location}' zones '{zone}' for subscription "
                f"'{cloud.subscription}'. Please try another size or deploy to a different "
                "location or zones. See https://aka.ms/azureskunotavailable for details.",
            )


def _check_quota(cloud: Cloud, vm: Vm, size: Size) -> None:
    if not cloud.capacity.quotas:
        return
    used = cloud.usages.compute_used()
    wanted = (
        [("lowPriorityCores", "LowPriorityCores", size.cores)]
        if vm.spot
        else [
            (size.family, f"{size.family} Cores", size.cores),
            ("cores", "Total Regional Cores", size.cores),
        ]
    )
    for name, shown, more in wanted:
        limit = cloud.usages.limit(name)
        if used[name] + more > limit:
            raise _quota(cloud, shown, limit, used[name], more)


def _quota(cloud: Cloud, shown: str, limit: int, used: int, more: int) -> Refusal:
    if cloud.capacity.old_quota_wording:
        return refusal(
            409,
            "OperationNotAllowed",
            f"Operation results in exceeding quota limits of Core. Maximum allowed: {limit}, "
            f"Current in use: {used}, Additional requested: {more}. Please read more about quota "
            "increase at http://aka.ms/corequotaincrease.",
        )
    return refusal(
        409,
        "OperationNotAllowed",
        f"Operation could not be completed as it results in exceeding approved {shown} quota. "
        f"Additional details - Deployment Model: Resource Manager, Location: {cloud.location}, "
        f"Current Limit: {limit}, Current Usage: {used}, Additional Required: {more}, (Minimum) "
        f"New Limit Required: {used + more}. Setup Alerts when Quota reaches threshold. Learn more "
        "at https://aka.ms/quotamonitoringalerting . Submit a request for Quota increase at "
        "https://aka.ms/ProdportalCRP/ by specifying parameters listed in the \u2018Details\u2019 "
        "section for deployment to succeed. Please read more about quota limits at "
        "https://docs.microsoft.com/en-us/azure/azure-supportability/regional-quota-requests",
    )


def _check_addresses(cloud: Cloud, more: int) -> None:
    limit = cloud.usages.limit("PublicIPAddresses")
    if not more or not cloud.capacity.quotas:
        return
    if cloud.usages.network_used()["PublicIPAddresses"] + more > limit:
        raise refusal(
            400,
            "PublicIPCountLimitReached",
            f"Cannot create more than {limit} public IP addresses for this subscription in this "
            "region.",
            details=[],
        )
