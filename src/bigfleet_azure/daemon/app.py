"""The daemon's life: what is started in which order, what is stopped in which order.

Start: the state is opened and checked, the inventory is loaded, gRPC listens, operations in flight
are resumed, and only then comes what the first answer does not need. A state that knows of no
inventory of a real substrate is the exception: what exists is asked first. Stop is the other way
round, within a bound, comes also in the middle of a start, and leaves every accepted operation
resumable.
"""

import asyncio
import gc
import importlib
import logging
import os
import platform
import signal
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bigfleet_azure import __version__
from bigfleet_azure.backends.base import Backend
from bigfleet_azure.daemon import loops, substrate
from bigfleet_azure.daemon.assembly import Parts, assemble, make_backend, open_store, reporter
from bigfleet_azure.daemon.callbacks import KEYS_CONDITION, CallbackKeys
from bigfleet_azure.daemon.settings import Settings
from bigfleet_azure.domain.errors import BackendError
from bigfleet_azure.domain.offering import Offer, built_in_mix
from bigfleet_azure.kit.clock import Clock, SystemClock
from bigfleet_azure.kit.supervisor import Supervisor
from bigfleet_azure.rpc.server import ListenError, RpcServer
from bigfleet_azure.rpc.tls import Certificates, TlsError, TlsFiles
from bigfleet_azure.service.catalogue import OffersRefused
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.store.base import Snapshot, Store
from bigfleet_azure.telemetry import logs
from bigfleet_azure.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from bigfleet_azure.web.listener import Listener

logger = logging.getLogger(__name__)

RPC_GRACE_SECONDS = 5.0
"""Time running RPCs get when the daemon stops."""

SHUTDOWN_LIMIT_SECONDS = 9.0
"""With the store's last flush the exit stays within 10 s; Kubernetes kills after 30 s."""

FIRST_WRITE_SECONDS = 60.0
"""Longest time for writing changed offerings at start; 100,000 machines in use need a few."""

NEW_PRICES_SECONDS = 15.0
"""Longest wait for prices before slots are shown for the first time; a few requests take a second.
Later ones change what is shown."""

FIRST_ANSWER_SECONDS = 0.1
"""Head start of the first List, for which a shard waits, before the rest of the start-up shares the
interpreter with it."""

CANCEL_SECONDS = 2.0
"""Longest wait for a start that is broken off; a disk that hangs keeps it longer."""

TLS_CONDITION = "tls"

GC_THRESHOLDS = (50_000, 20, 100)
"""Fewer and shorter pauses than the interpreter's defaults; what was loaded at start is frozen."""

_SECOND_SIGNAL_EXIT = 130
_CUT_OFF_EXIT = 1


class StartError(Exception):
    """The daemon cannot start; the text says why and what to do."""


class CannotListen(StartError):
    """The gRPC address cannot be listened on."""


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code.

    Raises:
        StartError, StoreUnusable: it could not start.
    """
    logs.begin(settings.log_level)
    gc.disable()
    gc.set_threshold(*GC_THRESHOLDS)
    daemon = Daemon(settings, SystemClock())
    try:
        asyncio.run(daemon.serve())
    finally:
        if not daemon.served:
            logs.finish(settings.log_format)
    return 0


class Daemon:
    """One daemon, for as long as it serves.

    Attributes:
        served: whether it ever got as far as serving.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.served = False
        self._settings = settings
        self._clock = clock
        self._metrics = Metrics()
        self._conditions = Conditions(clock, self._metrics)
        self._supervisor = Supervisor()
        self._stop = asyncio.Event()
        self._reload_wanted = asyncio.Event()
        self._ready = False
        self._listeners: list[Listener] = []

    async def serve(self) -> None:
        """Start, serve until told to stop, stop."""
        self._watch_signals()
        for warning in self._settings.warnings:
            logger.warning("%s", warning)
        self._keys = self._callback_keys()
        backend = make_backend(
            self._settings, self._clock, self._metrics, self._conditions, self._keys
        )
        offers = self._offers(backend)
        certificates = self._certificates()
        store = open_store(self._settings, self._clock, self._metrics)
        async with AsyncExitStack() as stack:
            await self._unless_stopped(self._start(stack, store, backend, offers, certificates))
            if not self._stop.is_set():
                self.served = True
                await self._stop.wait()
            logger.info("stopping" if self._ready else "stopped before it served")
            self._ready = False
            await self._end(asyncio.ensure_future(stack.pop_all().aclose()))

    async def _unless_stopped(self, start: Coroutine[Any, Any, None]) -> None:
        """Run the start to its end, or break it off when a signal comes."""
        starting = asyncio.create_task(start, name="start")
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting}, timeout=CANCEL_SECONDS)
        if starting.done() and not starting.cancelled():
            starting.result()

    async def _end(self, stopping: "asyncio.Future[None]") -> None:
        """Wait for the stop, but not for a disk that hangs: what was accepted is on it already."""
        await asyncio.wait((stopping,), timeout=SHUTDOWN_LIMIT_SECONDS)
        if stopping.done():
            return stopping.result()
        logger.error("stopping took longer than %gs and is cut off", SHUTDOWN_LIMIT_SECONDS)
        logging.shutdown()
        os._exit(_CUT_OFF_EXIT)

    async def _start(
        self,
        stack: AsyncExitStack,
        store: Store,
        backend: Backend,
        offers: list[Offer],
        certificates: Certificates | None,
    ) -> None:
        """Start everything; `stack` stops it in the reverse order."""
        snapshot = store.open()
        stack.push_async_callback(store.close)
        parts = assemble(
            self._settings,
            clock=self._clock,
            metrics=self._metrics,
            conditions=self._conditions,
            supervisor=self._supervisor,
            store=store,
            snapshot=snapshot,
            backend=backend,
        )
        stack.push_async_callback(parts.backend.close)
        stack.push_async_callback(self._close_web)
        stack.push_async_callback(self._supervisor.close)
        parts.backend.watch_facts(self._reload_wanted.set)
        if snapshot.wrong_key:
            self._conditions.set("state-key", snapshot.wrong_key)
        if backend.rebuilds and not snapshot.inventoried:
            await self._show(parts, certificates)
            await self._start_backend(parts, patient=False)
            await self._new_prices(parts, offers)
            await self._apply_first(parts, offers)
            await substrate.inventoried(parts.reconciler, self._clock)
            await parts.survey.take()  # what cannot be had is not shown for a moment either
            await self._listen(stack, parts, certificates)
            parts.opened.set()
            parts.take_up(snapshot)
        else:
            await self._apply_first(parts, offers)
            await self._listen(stack, parts, certificates)
            await self._clock.sleep(FIRST_ANSWER_SECONDS)
            await self._begin_behind(parts, snapshot, certificates)
        self._reload_when_asked(parts)
        loops.watch_substrate(self._supervisor, self._clock, parts, self._settings)

    async def _listen(
        self, stack: AsyncExitStack, parts: Parts, certificates: Certificates | None
    ) -> None:
        """Serve gRPC from the inventory."""
        _settle_memory()
        server = RpcServer(
            parts.provider,
            self._metrics,
            certificates=certificates,
            reflection=self._settings.reflection,
        )
        try:
            port = await server.start(str(self._settings.addr))
        except ListenError as error:
            raise CannotListen(str(error)) from error
        stack.push_async_callback(server.close, RPC_GRACE_SECONDS)
        await server.ready()
        self._ready = True
        self._announce(parts, port, certificates)

    async def _begin_behind(
        self, parts: Parts, snapshot: Snapshot, certificates: Certificates | None
    ) -> None:
        """Begin the work while the inventory is served already.

        A backend that can be away for long comes after what shows that; another one is there at
        once, and operations in flight wait for it.
        """
        if parts.backend.rebuilds:
            await self._show(parts, certificates)
            parts.take_up(snapshot)
            await self._start_backend(parts, patient=True)
            parts.opened.set()
            self._reload_wanted.set()  # more may be known of the offers now
        else:
            await self._start_backend(parts, patient=False)
            parts.opened.set()
            parts.take_up(snapshot)
            await self._show(parts, certificates)

    async def _start_backend(self, parts: Parts, *, patient: bool) -> None:
        try:
            await substrate.started(parts.backend, self._conditions, self._clock, patient=patient)
        except BackendError as error:
            raise StartError(str(error)) from error

    async def _show(self, parts: Parts, certificates: Certificates | None) -> None:
        """Open what operators look at: HTTP and the log; and keep it up to date."""
        await self._start_web(parts)
        await asyncio.to_thread(logs.finish, self._settings.log_format)
        loops.keep_house(
            self._supervisor, self._clock, parts, self._conditions, self._check_files(certificates)
        )

    def _check_files(self, certificates: Certificates | None) -> Callable[[], None]:
        """Looks whether files changed that are in use."""

        def check() -> None:
            if certificates is not None:
                certificates.check()
            self._keys.check()
            for listener in self._listeners:
                listener.check()

        return check

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            if self._stop.is_set():
                os._exit(_SECOND_SIGNAL_EXIT)  # what was accepted is on disk already
            self._stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        # From the first moment on, since a SIGHUP that nobody handles ends the process.
        loop.add_signal_handler(signal.SIGHUP, self._reload_wanted.set)

    def _offers(self, backend: Backend) -> list[Offer]:
        settings = self._settings
        if settings.offerings is None:
            offers = built_in_mix(settings.seed_count, (settings.zone_a, settings.zone_b))
        else:
            from bigfleet_azure.daemon.offerings_file import OfferingsError, load

            try:
                offers, warnings = load(settings.offerings, backend.facts, settings.azure)
            except OfferingsError as error:
                raise StartError(str(error)) from error
            for warning in warnings:
                logger.warning("%s", warning)
        if settings.fake_faults:
            from bigfleet_azure.backends.simulated.faults import fault_offers

            offers += fault_offers(settings.zone_a)
        return offers

    async def _reload(self, parts: Parts) -> None:
        """Apply the offerings file again; a faulty one changes nothing and is a condition."""
        try:
            offers = self._offers(parts.backend)
            await self._new_prices(parts, offers)
            applied = await parts.catalogue.apply(offers)
        except (StartError, OffersRefused) as error:
            self._conditions.set("offerings", str(error))
            return
        self._conditions.clear("offerings")
        parts.republisher.follow()
        await parts.survey.take()
        logger.info(
            "offerings applied",
            extra={
                "added": applied.added,
                "removed": applied.removed,
                "changed": applied.changed,
                "unknown": applied.unknown,
            },
        )

    def _certificates(self) -> Certificates | None:
        settings = self._settings
        if settings.tls_cert is None or settings.tls_key is None:
            return None
        files = TlsFiles(certificate=settings.tls_cert, key=settings.tls_key, ca=settings.tls_ca)
        report = reporter(self._conditions, TLS_CONDITION)
        try:
            return Certificates(files, self._clock, self._metrics, report)
        except TlsError as error:
            raise StartError(str(error)) from error

    def _announce(self, parts: Parts, port: int, certificates: Certificates | None) -> None:
        settings = self._settings
        asked = settings.use_fake_backend or settings.azure_backend == "fake"
        if settings.azure is None and not asked:
            logger.warning(
                "SIMULATED REGION: no --location was given, so the machines are not real; "
                "--use-fake-backend says that this is meant"
            )
        security = "insecure"
        if certificates is not None:
            security = "mTLS" if certificates.mutual else "TLS"
        logger.info(
            "serving CapacityProvider",
            extra={
                "address": str(replace(settings.addr, port=port)),
                "backend": parts.backend.name,
                "security": security,
                "version": __version__,
            },
        )
        python = platform.python_version()
        self._metrics.build_info.labels(__version__, python, parts.backend.name).set(1)

    def _callback_keys(self) -> CallbackKeys:
        report = reporter(self._conditions, KEYS_CONDITION)
        try:
            return CallbackKeys(self._settings.callback_key_file, report)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise StartError(f"--callback-key-file cannot be used: {why}") from error

    async def _new_prices(self, parts: Parts, offers: list[Offer]) -> None:
        """Know what things cost before they are shown for the first time, if that is soon known."""
        if not self._settings.price_refresh:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(NEW_PRICES_SECONDS):
                await parts.pricing.ask_about_new(offers)

    async def _apply_first(self, parts: Parts, offers: list[Offer]) -> None:
        """Publish the offers before anything is served; needs the store only if they changed."""
        try:
            async with asyncio.timeout(FIRST_WRITE_SECONDS):
                await parts.catalogue.apply(offers)
                await parts.catalogue.show_all()
        except OffersRefused as error:
            raise StartError(str(error)) from error
        except TimeoutError as error:
            trouble = "; ".join(c.message for c in self._conditions.standing())
            raise StartError(
                f"the changed offerings cannot be written to the state: {trouble}"
            ) from error

    async def _start_web(self, parts: Parts) -> None:
        settings = self._settings
        if settings.metrics_addr is None and settings.callback_addr is None:
            return
        # Imported in a thread: it takes longer than the first List may wait.
        await asyncio.to_thread(importlib.import_module, "bigfleet_azure.daemon.http")
        from bigfleet_azure.daemon.http import open_listeners

        self._listeners += await open_listeners(
            settings,
            parts,
            self._keys,
            metrics=self._metrics,
            conditions=self._conditions,
            clock=self._clock,
            ready=lambda: self._ready,
        )

    async def _close_web(self) -> None:
        for listener in self._listeners:
            await listener.close()

    def _reload_when_asked(self, parts: Parts) -> None:
        async def reload() -> None:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            await self._reload(parts)  # one at a time, whatever the number of signals

        async def at_once() -> None:
            return

        self._supervisor.loop("reload offerings", reload, at_once)


def _settle_memory() -> None:
    """What was loaded lives as long as the process: no collection needs to walk it again."""
    gc.freeze()
    gc.enable()
