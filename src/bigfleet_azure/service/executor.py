"""Runs accepted operations to their end, under their deadlines, across restarts.

Resuming is calling the backend's level-triggered method again. Trouble that may pass is waited out
inside the deadline; only a definite refusal or a spent deadline ends in FAILED.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import product

from bigfleet_azure.backends.base import Assignment, Backend, Condition, Host, Progress
from bigfleet_azure.domain.changes import ChangeSet
from bigfleet_azure.domain.errors import RETRYABLE, BackendError, FailureKind
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.metadata import unpack
from bigfleet_azure.domain.operation import Operation, operation_id
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.domain.settle import Outcome, settle
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.kit.supervisor import Supervisor
from bigfleet_azure.service.blocks import TIME_TO_LIVE_SECONDS, Blocks, of_one_offering
from bigfleet_azure.service.inventory import Inventory
from bigfleet_azure.service.janitor import Janitor
from bigfleet_azure.service.journal import Journal
from bigfleet_azure.service.losses import Losses
from bigfleet_azure.service.running import Run
from bigfleet_azure.store.base import Store
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
"""Back-off of a refusal that names no time: 1 s doubled up to 60 s, which is also the usual wait
after a 429 without Retry-After (azure-practice section 5)."""

LAST_LOOK_SECONDS = 15.0
"""Longest look at the substrate for an operation whose deadline passed while we were down."""

OPENING_SECONDS = 60.0
"""Least time that an operation waits for a substrate that cannot be reached yet: one whose deadline
passed while we were down may have reached its goal, which only the substrate can tell."""

QUEUE_NOTED_SECONDS = 1.0
"""A wait for a free place longer than this moves the persisted deadline too."""


class _Ended(Exception):
    """The operation failed for good."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Executor:
    """Owns one task per operation in flight, in one bounded pool per kind."""

    def __init__(
        self,
        *,
        backend: Backend,
        store: Store,
        inventory: Inventory,
        journal: Journal,
        blocks: Blocks,
        janitor: Janitor,
        losses: Losses,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
        pools: Mapping[Kind, int],
        opened: asyncio.Event,
    ) -> None:
        self._backend = backend
        self._store = store
        self._inventory = inventory
        self._journal = journal
        self._blocks = blocks
        self._janitor = janitor
        self._losses = losses
        losses.drain = self.resume
        self._clock = clock
        self._metrics = metrics
        self._supervisor = supervisor
        self._pools = {kind: asyncio.Semaphore(size) for kind, size in pools.items()}
        self._opened = opened
        self._random = random.Random()  # noqa: S311 - spreads waits, guards nothing
        self._in_flight: dict[Kind, dict[int, float]] = {kind: {} for kind in Kind}
        self._durations = {
            (kind, outcome): metrics.operation_duration.labels(kind, outcome)
            for kind in Kind
            for outcome in ("success", "failure")
        }
        for kind, reason in product(Kind, FailureKind):
            metrics.operation_failures.labels(kind, reason)  # a first failure is an increase, too

    def start(self, record: Record, blob: Secret) -> None:
        """Begin the operation that `record` was just accepted for."""
        self._launch(record, blob, resumed=False)

    def resume(self, record: Record) -> None:
        """Take up an operation that an earlier process left in flight."""
        self._launch(record, None, resumed=True)

    def refresh_metrics(self) -> None:
        """Set the gauges that are read only when somebody looks."""
        now = self._clock.now()
        for kind, running in self._in_flight.items():
            oldest = next(iter(running.values()), now)
            self._metrics.operations_in_flight.labels(kind).set(len(running))
            self._metrics.oldest_operation.labels(kind).set(max(0.0, now - oldest))

    def full(self, kind: Kind) -> bool:
        """Whether an operation of `kind` would have to wait for a place."""
        return self._pools[kind].locked()

    def _launch(self, record: Record, blob: Secret | None, *, resumed: bool) -> None:
        operation = record.operation
        assert operation is not None
        self._in_flight[operation.kind][operation.number] = operation.accepted_at
        work = self._assignment(record, operation, resumed)
        run = Run(record=record, operation=operation, work=work, blob=blob)
        self._supervisor.start(f"{operation.kind} {record.id}", self._run(run))

    async def _run(self, run: Run) -> None:
        outcome, reason = await self._outcome(run)
        if run.operation.loss:
            await self._losses.finish(run.record)
        else:
            await self._settle(run.record, run.operation, outcome)
        self._report(run, outcome, reason)
        del self._in_flight[run.operation.kind][run.operation.number]

    async def _outcome(self, run: Run) -> tuple[Outcome, FailureKind | None]:
        left = run.seconds_left(self._clock.now())
        try:
            if not self._opened.is_set():
                run.trouble = "the substrate was not reached yet"
                async with asyncio.timeout(max(left, OPENING_SECONDS) / self._clock.pace):
                    await self._opened.wait()
                run.trouble = ""
                left = run.seconds_left(self._clock.now())
            if run.work.resumed and left <= 0:
                async with asyncio.timeout(LAST_LOOK_SECONDS / self._clock.pace):
                    host = await self._last_look(run)
            else:
                async with asyncio.timeout(max(0.0, left) / self._clock.pace) as limit:
                    host = await self._persist(run, limit)
        except TimeoutError:
            return Outcome(error=run.deadline_text()), FailureKind.DEADLINE
        except _Ended as ended:
            return Outcome(error=f"{run.operation.kind} failed: {ended}"), ended.kind
        return Outcome(host=host.ref, parts=host.parts), None

    async def _persist(self, run: Run, limit: asyncio.Timeout) -> Host:
        """Call the backend until it succeeds or refuses for good."""
        kind = run.operation.kind
        if kind is Kind.CREATE:
            run.trouble = "leftovers of the slot's last host are not removed yet"
            await self._janitor.cleared(run.record.id)
            run.trouble = ""
            await self._blocks.turn(run.work.offer)
        attempt = 0
        while True:
            try:
                async with self._place(run, limit):
                    host = await self._call(run)
                if kind is Kind.CONFIGURE:
                    # Watching is no work: nodes that never come must not hold up other clusters.
                    await self._backend.wait_ready(self._noting(run))
            except BackendError as error:
                if error.kind not in RETRYABLE:
                    if error.shortage is not None:
                        self._blocks.record(error.shortage)
                    run.ids = error.ids
                    raise _Ended(error.kind, str(error)) from error
                run.trouble = str(error)
                self._metrics.operation_retries.labels(kind, error.kind).inc()
                await self._wait(run, error, attempt)
            except _Ended:
                raise
            except Exception as error:  # a bug in a backend must not lose the operation
                logger.exception(
                    "bug in the backend", extra={"machine": run.record.id, "kind": str(kind)}
                )
                run.trouble = f"internal error {type(error).__name__}"
                await self._clock.sleep(self._backoff(attempt))
            else:
                if kind in (Kind.CREATE, Kind.DELETE):
                    self._blocks.lift(run.work.offer)
                return host
            attempt += 1
            run.work = replace(run.work, resumed=True)

    @asynccontextmanager
    async def _place(self, run: Run, limit: asyncio.Timeout) -> AsyncIterator[None]:
        """Hold a place in the pool of the operation's kind while the backend works.

        Waiting for one stops the deadline's clock, over a restart too.
        """
        pool = self._pools[run.operation.kind]
        queued = run.operation.queued
        noted = queued
        if pool.locked() or queued:
            # By the loop's time: somebody may set the wall clock meanwhile.
            time = asyncio.get_running_loop().time
            since, when = time(), limit.when()
            assert when is not None
            pace = self._clock.pace
            left = run.seconds_left(self._clock.now()) if queued else (when - since) * pace
            limit.reschedule(None)
            await pool.acquire()
            limit.reschedule(time() + left / pace)
            noted = queued or (time() - since) * pace > QUEUE_NOTED_SECONDS
            if noted:
                deadline = self._clock.now() + left
                run.until(deadline)
        else:
            await pool.acquire()
        try:
            if noted:
                await self._update(run)
            yield
        finally:
            pool.release()

    async def _call(self, run: Run) -> Host:
        work = self._noting(run)
        match run.operation.kind:
            case Kind.CREATE:
                return await self._backend.create(work)
            case Kind.CONFIGURE:
                if not run.operation.handed_over:
                    await self._hand_over(run, work)
            case Kind.DRAIN:
                await self._backend.drain(work)
            case Kind.DELETE:
                await self._backend.delete(work)
        return run.host

    async def _hand_over(self, run: Run, work: Assignment) -> None:
        slot = run.record.slot
        secret = run.blob if run.blob is not None else await self._store.blob(slot)
        if secret is None:
            raise _Ended(
                FailureKind.INVALID,
                "the stored bootstrap blob cannot be read: the state key is lost or wrong; "
                "start with the key this state was written with",
            )
        await self._backend.configure(work, secret)
        run.operation = replace(run.operation, handed_over=True)
        run.blob = None
        await self._update(run, handed_over=(slot,))

    async def _last_look(self, run: Run) -> Host:
        """Whether the goal was reached while nobody watched; nothing is begun any more."""
        operation, work = run.operation, self._noting(run)
        try:
            if operation.kind is Kind.CONFIGURE:
                if not operation.handed_over:
                    raise TimeoutError
                await self._backend.wait_ready(work)
                return run.host
            seen = await self._backend.inspect(work.machine_id, work.host)
        except Exception as error:  # nobody asks again: what is not seen reached is not
            raise TimeoutError from error
        reached = {
            Kind.CREATE: seen.condition is Condition.RUNNING
            and seen.operation_id == work.operation_id,
            Kind.DRAIN: seen.condition is Condition.RUNNING and not seen.cluster,
            Kind.DELETE: seen.condition is Condition.GONE,
        }
        if not reached[operation.kind]:
            raise TimeoutError
        if operation.kind is Kind.CREATE:
            return Host(ref=seen.host, parts=seen.parts)
        return run.host

    async def _wait(self, run: Run, error: BackendError, attempt: int) -> None:
        offer = run.work.offer
        if error.kind in TIME_TO_LIVE_SECONDS:
            self._blocks.record(
                error.shortage
                or of_one_offering(run.record.offering, offer, error.kind, str(error))
            )
            if self._blocks.blocked(offer):
                self._waits(run, error, "its turn to probe what is short")
                await self._blocks.turn(offer)
                return
        if error.retry_after is not None:
            # Azure may say "try again after 0 seconds"; asking without a pause would hold the loop.
            wait = max(FIRST_RETRY_SECONDS, error.retry_after.total_seconds())
            wait *= 1 + 0.1 * self._random.random()
        else:
            wait = self._backoff(attempt)
        self._waits(run, error, f"{wait:.1f} s")
        await self._clock.sleep(wait)

    def _waits(self, run: Run, error: BackendError, until: str) -> None:
        """One line for each refusal that is waited out."""
        extra = {"reason": str(error.kind), "code": error.code, "wait": until, **error.ids}
        logger.info("operation waits: %s", error, extra={**self._named(run), **extra})

    def _named(self, run: Run) -> dict[str, str]:
        return {
            "machine": run.record.id,
            "operation": operation_id(self._inventory.incarnation, run.operation.number),
            "kind": str(run.operation.kind),
        }

    def _backoff(self, attempt: int) -> float:
        longest = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(attempt, 10))
        return longest * (0.5 + 0.5 * self._random.random())

    def _assignment(self, record: Record, operation: Operation, resumed: bool) -> Assignment:
        incarnation = self._inventory.incarnation
        created = record.created if operation.kind is not Kind.CREATE else 0
        return Assignment(
            machine_id=record.id,
            operation_id=operation_id(incarnation, operation.number),
            created_by=operation_id(incarnation, created) if created else "",
            offer=self._inventory.offering(record.offering).offer,
            host=record.host,
            parts=record.parts,
            cluster=record.cluster,
            metadata=unpack(record.metadata),
            grace_seconds=operation.grace_seconds,
            deadline=operation.deadline,
            resumed=resumed,
            progress=Progress(attempt=operation.attempt, url=operation.url, begun=operation.begun),
        )

    def _noting(self, run: Run) -> Assignment:
        """What the backend is given, with the way to note progress."""
        return replace(run.work, note=partial(self._note, run))

    async def _note(self, run: Run, progress: Progress) -> None:
        """Make what a backend must know again after a restart durable."""
        run.noted(progress)
        await self._update(run)

    async def _update(self, run: Run, handed_over: tuple[int, ...] = ()) -> None:
        """Persist what changed about an operation in flight; nothing of it is visible."""
        operation = run.operation

        def build() -> ChangeSet:
            record = self._inventory.record(run.record.id)
            current = record.operation if record else None
            if record is None or current is None or current.number != operation.number:
                return ChangeSet()
            return ChangeSet(
                records=(replace(record, operation=operation),), handed_over=handed_over
            )

        await self._journal.change(run.record.id, build)

    async def _settle(self, record: Record, operation: Operation, outcome: Outcome) -> None:
        def build() -> ChangeSet:
            return settle(
                self._inventory.record(record.id),
                operation,
                outcome,
                slot=record.slot,
                machine_id=record.id,
                now=self._clock.now(),
                change=self._inventory.reserve(),
            ).changes

        await self._journal.change(record.id, build)

    def _report(self, run: Run, outcome: Outcome, reason: FailureKind | None) -> None:
        kind = run.operation.kind
        seconds = self._clock.now() - run.operation.accepted_at
        self._durations[kind, "failure" if outcome.error else "success"].observe(seconds)
        extra = {**self._named(run), "seconds": round(seconds, 3)}
        if reason is None:
            logger.info("operation done", extra=extra)
            return
        self._metrics.operation_failures.labels(kind, reason).inc()
        logger.warning(
            "operation failed: %s", outcome.error, extra={**extra, "reason": str(reason), **run.ids}
        )
