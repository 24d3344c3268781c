"""Builds the service from settings: which parts there are, and who knows whom.

Starting, stopping and loops are `daemon.app`'s.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bigfleet_azure.backends.base import Backend
from bigfleet_azure.backends.instrumented import InstrumentedBackend
from bigfleet_azure.daemon.callbacks import CallbackKeys
from bigfleet_azure.daemon.settings import Settings
from bigfleet_azure.domain.decide import Limits
from bigfleet_azure.domain.lifecycle import Kind, State
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.kit.supervisor import Supervisor
from bigfleet_azure.rpc.codec import WireEncoder
from bigfleet_azure.service.blocks import Blocks
from bigfleet_azure.service.catalogue import Catalogue
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.service.executor import Executor
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.service.janitor import Janitor
from bigfleet_azure.service.journal import Journal
from bigfleet_azure.service.losses import Losses
from bigfleet_azure.service.notices import Notices
from bigfleet_azure.service.pricing import Pricing
from bigfleet_azure.service.provider import Provider
from bigfleet_azure.service.reconciler import Reconciler
from bigfleet_azure.service.republishing import Republisher
from bigfleet_azure.service.strays import Strays
from bigfleet_azure.service.survey import Survey
from bigfleet_azure.store.base import Snapshot, Store
from bigfleet_azure.telemetry.metrics import Metrics

SLOW_OK_MARGIN = timedelta(seconds=2)
"""How far past its deadline a `fault-slow-ok` join succeeds; the certification lane looks that
long after it (contract section 17)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The service, wired and not yet started.

    Attributes:
        opened: to be set once the backend was started; until then work waits, and deadlines pass.
    """

    backend: Backend
    inventory: Inventory
    blocks: Blocks
    catalogue: Catalogue
    executor: Executor
    janitor: Janitor
    losses: Losses
    reconciler: Reconciler
    survey: Survey
    pricing: Pricing
    republisher: Republisher
    notices: Notices
    provider: Provider
    metrics: Metrics
    opened: asyncio.Event

    def take_up(self, snapshot: Snapshot) -> None:
        """Continue what an earlier process left: debts, failed machines, walks, operations."""
        for debt in snapshot.debts:
            self.janitor.owe(debt)
        for record in snapshot.records:
            if record.state is State.FAILED:
                self.janitor.failed(record)
            elif record.operation is not None and record.operation.loss:
                self.losses.resume(record)
            elif record.operation is not None:
                self.executor.resume(record)

    def refresh_metrics(self) -> None:
        """Set the gauges that are counted only when somebody looks."""
        self.executor.refresh_metrics()
        self.janitor.refresh_metrics()
        self.blocks.refresh_metrics()
        self.pricing.refresh_metrics()
        self.metrics.withheld.set(self.inventory.withheld())
        for state, count in self.inventory.counts().items():
            self.metrics.machines.labels(state.name).set(count)

    def notes(self) -> dict[str, str]:
        """What operators may want to know and need not act on."""
        notes = {}
        offerings = self.inventory.offerings()
        withheld = [one.offer for one in offerings if one.withheld and one.offer.count]
        if withheld:
            why = self.blocks.text(withheld)
            notes["capacity"] = f"{len(withheld)} offerings withheld: {why}"
        if guessed := self.pricing.guessed():
            notes["prices"] = f"guessed, since none is known: {', '.join(guessed)}"
        return notes

    def made_by(self, machine_id: str) -> str:
        """Operation id of the Create that made a machine's host; empty for no such machine."""
        record = self.inventory.record(machine_id)
        return self.reconciler.made_by(record) if record is not None else ""


def assemble(
    settings: Settings,
    *,
    clock: Clock,
    metrics: Metrics,
    conditions: Conditions,
    supervisor: Supervisor,
    store: Store,
    snapshot: Snapshot,
    backend: Backend,
) -> Parts:
    """Wire the service over an opened store.

    Args:
        settings: what the operator wants.
        snapshot: what `store` held when it was opened.
        backend: the substrate, not started yet.
    """
    backend = InstrumentedBackend(backend, metrics)
    inventory = Inventory(WireEncoder(), settings.provider, snapshot)
    journal = Journal(store, inventory, conditions, clock)
    blocks = Blocks(clock, metrics)
    opened = asyncio.Event()
    janitor = Janitor(
        backend=backend,
        inventory=inventory,
        journal=journal,
        conditions=conditions,
        clock=clock,
        metrics=metrics,
        supervisor=supervisor,
        dwell_seconds=settings.failed_dwell.total_seconds(),
        parallel=settings.delete_concurrency,
        opened=opened,
    )
    strays = Strays(
        inventory=inventory,
        journal=journal,
        janitor=janitor,
        conditions=conditions,
        clock=clock,
        metrics=metrics,
        created=snapshot.created,
        remove=settings.leftovers == "remove",
    )
    losses = Losses(
        inventory=inventory, journal=journal, clock=clock, metrics=metrics, supervisor=supervisor
    )
    executor = Executor(
        backend=backend,
        store=store,
        inventory=inventory,
        journal=journal,
        blocks=blocks,
        janitor=janitor,
        losses=losses,
        clock=clock,
        metrics=metrics,
        supervisor=supervisor,
        pools={
            Kind.CREATE: settings.create_concurrency,
            Kind.CONFIGURE: settings.configure_concurrency,
            Kind.DRAIN: settings.drain_concurrency,
            Kind.DELETE: settings.delete_concurrency,
        },
        opened=opened,
    )
    journal.follow(janitor.follow)
    catalogue = Catalogue(
        backend=backend,
        inventory=inventory,
        journal=journal,
        blocks=blocks,
        clock=clock,
        supervisor=supervisor,
        provider=settings.provider,
        region=settings.location,
    )
    republisher = Republisher(
        inventory=inventory,
        journal=journal,
        clock=clock,
        supervisor=supervisor,
        threshold=settings.republish_threshold,
    )
    return Parts(
        backend=backend,
        inventory=inventory,
        blocks=blocks,
        catalogue=catalogue,
        executor=executor,
        janitor=janitor,
        reconciler=Reconciler(
            backend=backend,
            inventory=inventory,
            journal=journal,
            strays=strays,
            conditions=conditions,
            metrics=metrics,
            losses=losses,
            inventoried=snapshot.inventoried,
        ),
        losses=losses,
        pricing=Pricing(
            backend=backend,
            inventory=inventory,
            catalogue=catalogue,
            journal=journal,
            republisher=republisher,
            conditions=conditions,
            metrics=metrics,
            kept=snapshot.market,
        ),
        republisher=republisher,
        notices=Notices(
            inventory=inventory, journal=journal, losses=losses, clock=clock, metrics=metrics
        ),
        survey=Survey(backend=backend, blocks=blocks, conditions=conditions, metrics=metrics),
        provider=Provider(
            inventory=inventory,
            journal=journal,
            clock=clock,
            limits=Limits(
                deadlines=settings.deadlines,
                blob_bytes=backend.max_blob_bytes,
                cluster=settings.cluster_id,
                kubeconfigs=settings.uses_kubeconfigs,
            ),
            worker=executor,
        ),
        metrics=metrics,
        opened=opened,
    )


def open_store(settings: Settings, clock: Clock, metrics: Metrics) -> Store:
    """The store that the settings ask for, not opened yet."""
    if settings.state is None:
        from bigfleet_azure.store.memory import MemoryStore

        return MemoryStore(clock)
    from bigfleet_azure.store.sqlite import SqliteStore

    key = settings.state_key
    return SqliteStore(
        settings.state,
        clock=clock,
        metrics=metrics,
        key_file=settings.state_key_file,
        key_text=key.reveal().decode(errors="replace") if key else None,
    )


def reporter(conditions: Conditions, name: str) -> Callable[[str | None], None]:
    """Sets a condition to a text, or clears it with None."""

    def report(trouble: str | None) -> None:
        if trouble is None:
            conditions.clear(name)
        else:
            conditions.set(name, trouble)

    return report


def make_backend(
    settings: Settings,
    clock: Clock,
    metrics: Metrics,
    conditions: Conditions,
    keys: CallbackKeys,
) -> Backend:
    """The substrate that the settings ask for, not started yet."""
    if settings.azure is None:
        return simulated_backend(settings, clock)
    from bigfleet_azure.backends.azure.backend import AzureBackend
    from bigfleet_azure.backends.azure.options import Callback

    return AzureBackend(
        settings.azure,
        clock=clock,
        metrics=metrics,
        report=lambda name, trouble: reporter(conditions, name)(trouble),
        callback=Callback(url=settings.callback_url, token=keys.token),
    )


def simulated_backend(settings: Settings, clock: Clock) -> Backend:
    """The simulated region, its VMs kept beside the state file when there is one."""
    from bigfleet_azure.backends.simulated.backend import SimulatedBackend
    from bigfleet_azure.backends.simulated.options import SimulationOptions

    options = SimulationOptions(
        seed=settings.fake_seed,
        latency=settings.fake_latency,
        quota=settings.fake_quota or None,
        evict_rate=settings.fake_evict_rate,
        fail_rate=settings.fake_fail_rate,
        throttle=settings.fake_throttle,
        faults=settings.fake_faults,
        slow_ok_delay=timedelta(seconds=settings.deadlines.configure) + SLOW_OK_MARGIN,
    )
    ledger = Path(f"{settings.state}.region") if settings.state else None
    return SimulatedBackend(options, clock, ledger)
