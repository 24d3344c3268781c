"""The Backend protocol on Azure: what is wired to what, and how it begins and ends.

The steps themselves are `creating`, `binding`, `removing`, `observing` and `surveying`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bigfleet_azure.backends.azure import bootstrap
from bigfleet_azure.backends.azure.binding import Binder
from bigfleet_azure.backends.azure.clients import Clients
from bigfleet_azure.backends.azure.creating import Creator
from bigfleet_azure.backends.azure.market import Market
from bigfleet_azure.backends.azure.observing import Observer
from bigfleet_azure.backends.azure.options import (
    NO_CALLBACK,
    AzureOptions,
    Callback,
)
from bigfleet_azure.backends.azure.planning import Outlook, Planner
from bigfleet_azure.backends.azure.poller import Poller
from bigfleet_azure.backends.azure.refreshing import Refresher
from bigfleet_azure.backends.azure.removing import Remover
from bigfleet_azure.backends.azure.surveying import Surveyor
from bigfleet_azure.backends.azure.throttle import Throttle
from bigfleet_azure.backends.azure.vms import Vms
from bigfleet_azure.backends.base import Assignment, Host, Observation, Refreshed
from bigfleet_azure.domain.debt import Debt
from bigfleet_azure.domain.offering import Facts, Offer
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.domain.shortage import Shortage
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from bigfleet_azure.backends.azure.kubernetes import Clusters

CREDENTIAL_CONDITION = "credential"

Report = Callable[[str, str | None], None]
"""Sets the condition of that name to a text, or clears it with None."""


class AzureBackend:
    """Machines as Azure virtual machines.

    Args:
        options: what the operator decided.
        clock: time and waiting.
        metrics: where calls are counted.
        report: where standing trouble is told.
        callback: what machines are given to call back with.
    """

    def __init__(
        self,
        options: AzureOptions,
        *,
        clock: Clock,
        metrics: Metrics,
        report: Report,
        callback: Callback = NO_CALLBACK,
    ) -> None:
        self.name = "azure"
        self.rebuilds = True
        self.max_blob_bytes = bootstrap.MAX_BLOB_BYTES
        self._market = Market(options.market, options.location)
        self._planner = Planner(options, metrics, self._market, callback)
        self._clients = Clients(
            options,
            clock=clock,
            throttle=Throttle(clock, metrics),
            metrics=metrics,
            credential_trouble=lambda text: report(CREDENTIAL_CONDITION, text),
        )
        self._poller = Poller(
            clock, ask=self._clients.poll, list_all=self._clients.vms_by_name, metrics=metrics
        )
        vms = Vms(self._clients, self._poller, clock, owner=options.owner)
        self._clusters = _clusters(options, clock)
        self._remover = Remover(vms, clock)
        self._creator = Creator(vms, self._planner, self._remover)
        self._binder = Binder(vms, self._planner, options, self._clusters, clock)
        self._observer = Observer(vms, self._creator, self._remover, clock, owner=options.owner)
        self._refresher = Refresher(
            options,
            market=self._market,
            clients=self._clients,
            clock=clock,
            metrics=metrics,
            sizes=self._planner.size_names,
        )
        self._surveyor = Surveyor(self._clients, self._planner, options, clock, report)

    async def start(self) -> None:
        """Open the connection and check the settings against Azure.

        Raises:
            BackendError: what is wrong, all of it; or that Azure does not answer.
        """
        await asyncio.gather(self._clients.open(), self._planner.prepare())
        await self._surveyor.check()

    async def close(self) -> None:
        """Close connections. What Azure was told to do goes on."""
        await self._poller.close()
        if self._clusters is not None:
            await self._clusters.close()
        await self._refresher.close()
        await self._clients.close()

    def facts(self, offer: Offer) -> Facts:
        """What is published about `offer`, by what Azure says of its size."""
        return self._planner.facts(offer)

    def offered(self, offers: Sequence[Offer]) -> None:
        """Ask for sizes, images, subnets and prices of these offers only."""
        self._planner.offered(offers)

    def recall(self, kept: str) -> None:
        """Take up the prices and rates that an earlier process learnt."""
        self._market.load(kept)
        self._refresher.show()

    async def refresh(self) -> Refreshed:
        """Read prices and eviction rates anew."""
        return await self._refresher.refresh()

    def outlook(self, offer: Offer) -> Outlook:
        """All that is known of an offer's chances, for people."""
        return self._planner.outlook(offer)

    def unpriced(self) -> Sequence[str]:
        """Sizes that are offered at a guessed price."""
        return self._planner.unpriced()

    def watch_facts(self, changed: Callable[[], None]) -> None:
        """Call `changed` when Azure's list of sizes was read anew."""
        self._planner.sizes_changed = changed

    async def create(self, work: Assignment) -> Host:
        """Make the VM of this operation exist and be provisioned."""
        return await self._creator.create(work)

    async def configure(self, work: Assignment, blob: Secret) -> None:
        """Tag the VM as bound and let its hook apply the blob."""
        await self._binder.configure(work, blob)

    async def wait_ready(self, work: Assignment) -> None:
        """Return once the node is Ready."""
        await self._binder.wait_ready(work)

    async def drain(self, work: Assignment) -> None:
        """Take the node out of its cluster and the binding off the VM."""
        await self._binder.drain(work)

    async def delete(self, work: Assignment) -> None:
        """Make the VM and its parts not exist."""
        await self._remover.delete(work)

    async def reclaim(self, debt: Debt, operation_id: str) -> None:
        """Make what the debt stands for not exist."""
        await self._remover.reclaim(debt, operation_id)

    async def inspect(self, machine_id: str, host: str) -> Observation:
        """Ask Azure about one VM."""
        return await self._observer.inspect(machine_id, host)

    async def inventory(self) -> Sequence[Observation]:
        """List the daemon's VMs, and its parts that nothing holds."""
        return await self._observer.inventory()

    async def shortages(self) -> Sequence[Shortage]:
        """What quota leaves too little of, and offers that can never be had."""
        return await self._surveyor.shortages()


def _clusters(options: AzureOptions, clock: Clock) -> "Clusters | None":
    if not options.uses_kubeconfigs or options.kubeconfig_dir is None:
        return None
    from bigfleet_azure.backends.azure.kubernetes import Clusters

    return Clusters(options.kubeconfig_dir, clock)
