"""What Azure has for us: the checks at start, sizes and images, and what quota leaves.

The checks find every fault at once; what Azure does not answer is no fault and is asked again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

from bigfleet_azure.backends.azure import errors
from bigfleet_azure.backends.azure.arm import ArmError
from bigfleet_azure.backends.azure.clients import NETWORK_API, Clients
from bigfleet_azure.backends.azure.images import look_up
from bigfleet_azure.backends.azure.options import AzureOptions
from bigfleet_azure.backends.azure.planning import Planner
from bigfleet_azure.domain.errors import RETRYABLE, BackendError, FailureKind
from bigfleet_azure.domain.shortage import Shortage
from bigfleet_azure.kit.clock import Clock

logger = logging.getLogger(__name__)

Json = dict[str, Any]
Report = Callable[[str, str | None], None]

PROVIDERS = ("Microsoft.Compute", "Microsoft.Network")
PROVIDERS_CONDITION = "resource-providers"
SUBNET_CONDITION = "subnet-egress"

SIZES_SECONDS = 3600.0
"""Age at which sizes are read anew: restrictions of a subscription change seldom."""


class Surveyor:
    """Asks for what is to be had, and gives it to the planner."""

    def __init__(
        self,
        clients: Clients,
        planner: Planner,
        options: AzureOptions,
        clock: Clock,
        report: Report,
    ) -> None:
        self._clients = clients
        self._planner = planner
        self._options = options
        self._clock = clock
        self._report = report
        self._sizes_at = float("-inf")
        self._checked = False
        self._settled: set[str] = set()
        self._closed: dict[str, str] = {}

    async def check(self) -> None:
        """Check the settings against Azure.

        A daemon that goes on after a fault has machines to look after: from the second check on,
        an image or a subnet that is missing only withholds what would be made from it.

        Raises:
            BackendError: INVALID with every fault, or the first trouble that may pass.
        """
        found, named = await asyncio.gather(
            self._faults(self._group(), self._sizes()), self._faults(*self._unsettled())
        )
        faults = [text for text in (*found, *(() if self._checked else named)) if text]
        self._checked = True
        if faults:
            raise BackendError(FailureKind.INVALID, "\n".join(faults), code="Settings")

    async def shortages(self) -> Sequence[Shortage]:
        """What quota leaves too little of, and what can never be had."""
        try:
            if self._clock.now() - self._sizes_at > SIZES_SECONDS:
                await self._sizes()
            await self._faults(*self._unsettled())
            rows = await asyncio.gather(
                self._clients.compute_usages(), self._clients.network_usages()
            )
        except ArmError as error:
            raise errors.backend_error(error.failure, "the survey of quota") from error
        return [*self._planner.quota_shortages(*rows), *self._planner.impossible()]

    def _unsettled(self) -> list[Awaitable[str]]:
        """Checks of what is new or was found wanting: what was found good is not asked again."""
        checks: list[Awaitable[str]] = []
        if PROVIDERS_CONDITION not in self._settled:
            checks.append(self._providers())
        subnets = self._planner.subnets()
        checks += [self._subnet(one, subnets[one]) for one in subnets if one not in self._settled]
        checks += [self._image(one) for one in self._planner.images() if one not in self._settled]
        return checks

    async def _faults(self, *checks: Awaitable[str]) -> list[str]:
        return await asyncio.gather(*(self._fault(check) for check in checks))

    async def _fault(self, check: Awaitable[str]) -> str:
        try:
            return await check
        except ArmError as error:
            refusal = errors.backend_error(error.failure, "the settings")
            if refusal.kind in RETRYABLE:
                raise refusal from error
            return str(refusal)

    async def _group(self) -> str:
        if await self._clients.group() is not None:
            return ""
        return (
            f"resource group {self._options.resource_group} does not exist in subscription "
            f"{self._options.subscription_id}; create it, or correct --resource-group or "
            "--subscription-id"
        )

    async def _sizes(self) -> str:
        listed = await self._clients.skus()
        if not listed:
            return f"Azure knows no sizes in {self._options.location}; correct --location"
        self._planner.learn_sizes(listed)
        self._sizes_at = self._clock.now()
        return ""

    async def _providers(self) -> str:
        missing = []
        for namespace in PROVIDERS:
            try:
                found = await self._clients.provider(namespace)
            except ArmError as error:
                if errors.classify(error.failure).kind is not FailureKind.DENIED:
                    raise
                logger.warning("whether %s is registered may not be read: %s", namespace, error)
                continue
            state = str((found or {}).get("registrationState") or "unknown")
            if state.lower() not in ("registered", "registering"):
                missing.append(f"{namespace} is {state}")
        if not missing:
            self._settled.add(PROVIDERS_CONDITION)
        self._report(
            PROVIDERS_CONDITION,
            f"{' and '.join(missing)}: register with `az provider register --namespace`"
            if missing
            else None,
        )
        return ""

    async def _subnet(self, subnet_id: str, addressed: bool) -> str:
        """Look at a subnet; `addressed`: all of its machines get public IP addresses."""
        try:
            subnet = await self._clients.read("subnet.get", subnet_id, NETWORK_API)
        except ArmError as error:
            if errors.classify(error.failure).kind is not FailureKind.DENIED:
                raise
            logger.warning("the subnet may be joined but not read: %s", error)
            return self._judged(subnet_id, "")
        if subnet is None:
            return self._judged(
                subnet_id, f"subnet {subnet_id} does not exist; correct --subnet-id"
            )
        self._closed.pop(subnet_id, None)
        closed = None if addressed else _no_way_out(subnet, subnet_id)
        if closed:
            self._closed[subnet_id] = closed
        self._report(SUBNET_CONDITION, "; ".join(self._closed.values()) or None)
        return self._judged(subnet_id, "", settled=not closed)

    async def _image(self, image: str) -> str:
        """Read what an image needs; "" also when it cannot be read."""
        try:
            found = await look_up(self._clients, image)
        except ArmError as error:
            if errors.classify(error.failure).kind is FailureKind.DENIED:
                logger.warning("the image may be used but not read: %s", error)
                return self._judged(image, "")
            if error.failure.status != HTTPStatus.NOT_FOUND:
                raise
            found = None
        if found is None:
            where = self._options.location
            return self._judged(image, f"image {image} does not exist in {where}; correct --image")
        self._planner.learn_image(image, found)
        return self._judged(image, "")

    def _judged(self, name: str, fault: str, *, settled: bool = True) -> str:
        """Let the planner know whether an image or a subnet can be had."""
        self._planner.learn_absent(name, fault)
        if settled and not fault:
            self._settled.add(name)
        return fault


def _no_way_out(subnet: Json, subnet_id: str) -> str | None:
    """Why machines of a subnet may be cut off from the internet, and so from their cluster."""
    properties = subnet.get("properties") or {}
    if properties.get("natGateway") or properties.get("routeTable"):
        return None
    if properties.get("defaultOutboundAccess") is not False:
        return None
    return (
        f"subnet {subnet_id} has no NAT gateway, no route table and no default outbound access: "
        "machines without a public IP may not reach anything outside"
    )
