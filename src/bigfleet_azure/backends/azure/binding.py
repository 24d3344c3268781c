"""Binding a VM to a cluster and taking it out again: tags, the hook in the guest, the node.

The tags are written before the hook runs and removed after it, so that a lost store never takes a
machine for idle that may hold a node.
"""

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bigfleet_azure.backends.azure import bootstrap, guest_report, tags
from bigfleet_azure.backends.azure.arm import ArmError, Failure
from bigfleet_azure.backends.azure.connection import Reply
from bigfleet_azure.backends.azure.options import AzureOptions, BootstrapMethod, GuestMethod
from bigfleet_azure.backends.azure.planning import Planner
from bigfleet_azure.backends.azure.poller import Over
from bigfleet_azure.backends.azure.vms import POWERLESS, Vms, lost, power_of, state_of, statuses_of
from bigfleet_azure.backends.base import Assignment
from bigfleet_azure.domain.errors import RETRYABLE, BackendError, FailureKind
from bigfleet_azure.domain.secret import Secret
from bigfleet_azure.kit.clock import Clock

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from bigfleet_azure.backends.azure.kubernetes import Clusters

Json = dict[str, Any]

EXTENSION = "bigfleet-hook"
"""The one name, since a VM takes one CustomScript only (field case E1)."""

AGENT_LATE_SECONDS = 600.0
"""Age of a VM whose agent should have reported long ago. Azure itself waits some 25 minutes for
one that never does (azure-facts section 2.2)."""

AGENT_LOOK_SECONDS = 30.0

LOST_LOOK_SECONDS = 120.0
"""Pause between looks at a VM whose node is waited for: a thousand of them cost 8 of the 25 reads
that ARM gives back in a second."""


class Binder:
    """The Configure and Drain operations, and the watch for the node."""

    def __init__(
        self,
        vms: Vms,
        planner: Planner,
        options: AzureOptions,
        clusters: "Clusters | None",
        clock: Clock,
    ) -> None:
        self._vms = vms
        self._planner = planner
        self._options = options
        self._clusters = clusters
        self._clock = clock

    # Configure

    async def configure(self, work: Assignment, blob: Secret) -> None:
        """Hand the blob over, and return when the hook has taken it."""
        async with self._vms.locks.hold(work.machine_id):
            try:
                await self._configure(work, blob)
            except ArmError as error:
                raise self._planner.refused(error.failure, work) from error

    async def _configure(self, work: Assignment, blob: Secret) -> None:
        self._check_cluster(work)
        vm = await self._own(work)
        await self._running(work, vm)
        await self._tag(work, vm)
        if self._options.bootstrap_method is BootstrapMethod.NONE:
            await self._kubernetes.uncordon(
                work.cluster, work.machine_id, vm_id=_vm_id(vm), host=work.host
            )
            return
        if not work.progress.begun:
            work = replace(work, progress=replace(work.progress, begun=self._clock.now()))
            await work.note(work.progress)
        body = bootstrap.configure_extension(
            hook=self._options.bootstrap_hook,
            blob=blob,
            operation_id=work.operation_id,
            machine_id=work.machine_id,
            deadline=work.deadline,
            location=self._options.location,
        )
        await self._run_hook(work, vm, body, blob)

    def _check_cluster(self, work: Assignment) -> None:
        only = self._options.cluster
        if self._options.bootstrap_method is BootstrapMethod.NONE and work.cluster != only:
            raise BackendError(
                FailureKind.INVALID,
                f"{work.machine_id} joins {only} by its user data and cannot join {work.cluster}",
                code="OtherCluster",
            )

    async def _running(self, work: Assignment, vm: Json) -> None:
        """Start the VM unless it runs."""
        power = power_of(statuses_of(vm))
        if power in ("running", "starting", ""):
            return
        if power == "deallocated" and (vm.get("properties") or {}).get("priority") == "Spot":
            raise lost(work.machine_id, "the spot VM was evicted and deallocated")
        logger.info("a stopped VM is started", extra={"machine": work.machine_id, "power": power})
        reply = await self._vms.clients.start_vm(work.machine_id)
        await self._vms.end(reply, kind="vm.start", vm=work.machine_id, over=_ask)

    async def _tag(self, work: Assignment, vm: Json) -> None:
        existing = vm.get("tags") or {}
        other = tags.bound_by(existing)
        if other not in ("", work.operation_id):
            raise BackendError(
                FailureKind.CONFLICT,
                f"{work.machine_id} is bound already, by {other}; drain it first",
                code="Conflict",
            )
        wanted = tags.binding_tags(work.cluster, work.metadata, work.operation_id, existing)
        if wanted.items() <= existing.items():
            return
        reply = await self._vms.clients.merge_tags(str(vm["id"]), wanted)
        await self._vms.end(reply, kind="tags", vm=work.machine_id, over=_ask)

    # The hook

    async def _run_hook(self, work: Assignment, vm: Json, body: Json, blob: Secret | None) -> None:
        """Make it true that this operation's script ran, once, and succeeded."""
        name = work.machine_id
        body["properties"]["forceUpdateTag"] = _rerun_key(work)
        extension: Json | None = None
        if work.resumed:
            extension = await self._vms.clients.get_extension(name, EXTENSION)
        if extension is None or _key(extension) != _rerun_key(work):
            self._heard_of_agent(work, vm)
            reply = await self._send_hook(work, body)
            await work.note(replace(work.progress, url=reply.url))
        else:
            reply = Reply(status=200, url=work.progress.url)
        failure = await self._hook_end(work, reply)
        if failure is None:
            return
        view = await self._vms.clients.get_vm(name, instance_view=True)
        # Looking for pieces of a large blob in what the guest said takes too long for the loop.
        explained = await asyncio.to_thread(
            guest_report.explain,
            failure,
            ((view or {}).get("properties") or {}).get("instanceView"),
            hook=self._options.bootstrap_hook,
            image=self._planner.profile(work.offer).image,
            secret=blob,
        )
        refusal = self._planner.refused(failure, work)
        if not explained.definite:
            attempt = work.progress.attempt + 1
            await work.note(replace(work.progress, attempt=attempt, url=""))
            raise BackendError(
                refusal.kind if refusal.kind in RETRYABLE else FailureKind.TRANSIENT,
                f"{name}: {explained.text}",
                code=refusal.code,
                retry_after=refusal.retry_after,
                ids=refusal.ids,
            )
        raise BackendError(
            FailureKind.INVALID, f"{name}: {explained.text}", code=failure.code, ids=refusal.ids
        )

    async def _send_hook(self, work: Assignment, body: Json) -> Reply:
        try:
            return await self._vms.clients.put_extension(work.machine_id, EXTENSION, body)
        except ArmError as error:
            if "multiple vmextensions" not in error.failure.message.lower():
                raise
            others = await self._vms.clients.list_extensions(work.machine_id)
            named = ", ".join(str(one.get("name")) for one in others) or "unnamed"
            raise BackendError(
                FailureKind.CONFLICT,
                f"{work.machine_id} has another CustomScript extension ({named}), and Azure takes "
                f"one only ({error.failure.code}); take it out of the image or the policy",
                code=error.failure.code,
            ) from error

    async def _hook_end(self, work: Assignment, reply: Reply) -> Failure | None:
        """Wait until the script has ended; why it failed, or None."""
        name = work.machine_id
        try:
            await self._vms.end(reply, kind="extension.put", vm=name, over=_ask)
        except ArmError as error:
            failure = error.failure
        else:
            if reply.url:
                return None
            failure = Failure(call="extension.put", status=200, code="VMExtensionProvisioningError")
        while True:
            extension = await self._vms.clients.get_extension(name, EXTENSION)
            if extension is None or _key(extension) != _rerun_key(work):
                return failure
            if state_of(extension) == "succeeded":
                return None
            if state_of(extension) not in ("creating", "updating", "transitioning"):
                return failure
            if power_of(statuses_of(await self._own(work))) in POWERLESS:
                return failure  # a guest that does not run tells of no end
            await self._vms.pause()

    def _heard_of_agent(self, work: Assignment, vm: Json) -> None:
        """An old VM whose agent never reported takes no extension: say so at once (case E10)."""
        view = (vm.get("properties") or {}).get("instanceView") or {}
        statuses = (view.get("vmAgent") or {}).get("statuses") or []
        silent = any("unavailable" in str(one.get("code")).lower() for one in statuses)
        if silent and self._vms.age(vm) > AGENT_LATE_SECONDS:
            raise BackendError(
                FailureKind.TRANSIENT,
                f"no guest agent answers in {work.machine_id}: an image without one needs "
                "--bootstrap-method none; else see its boot diagnostics",
                code="VMAgentStatusCommunicationError",
                retry_after=timedelta(seconds=AGENT_LOOK_SECONDS),
            )

    # The node

    async def wait_ready(self, work: Assignment) -> None:
        """Return once the node is Ready: the hook has seen it, or the cluster says so."""
        try:
            if self._options.readiness is GuestMethod.HOOK:
                await self._hook_ended(work)
            else:
                await self._node_ready(work)
        except ArmError as error:
            raise self._planner.refused(error.failure, work) from error

    async def _works(self, work: Assignment) -> None:
        """Find out that the VM is there and runs, or that it is lost."""
        power = power_of(statuses_of(await self._own(work)))
        if power in POWERLESS:
            raise lost(work.machine_id, f"power state VM {power}")

    async def _hook_ended(self, work: Assignment) -> None:
        """The hook ends when the node is Ready: it must have been this operation's."""
        await self._works(work)
        extension = await self._vms.clients.get_extension(work.machine_id, EXTENSION)
        if extension is None or _key(extension).partition(".")[0] != work.operation_id:
            raise lost(work.machine_id, f"it does not hold the bootstrap of {work.operation_id}")

    async def _node_ready(self, work: Assignment) -> None:
        """Watch the cluster, and now and then the VM; trouble of the one calls the other not."""
        joins_by_itself = self._options.bootstrap_method is BootstrapMethod.NONE
        waiting = asyncio.ensure_future(
            self._kubernetes.wait_ready(
                work.cluster,
                work.machine_id,
                vm_id=self._vms.read_parts(work.parts).vm_id,
                host=work.host,
                since=None if joins_by_itself else work.progress.begun,
                deadline=work.deadline,
            )
        )
        try:
            while not waiting.done():
                pause = asyncio.ensure_future(self._clock.sleep(LOST_LOOK_SECONDS))
                await asyncio.wait({waiting, pause}, return_when=asyncio.FIRST_COMPLETED)
                pause.cancel()
                if not waiting.done():
                    await self._works(work)
            waiting.result()
        finally:
            waiting.cancel()

    # Drain

    async def drain(self, work: Assignment) -> None:
        """Take the machine out of its cluster, then remove what binds it."""
        async with self._vms.locks.hold(work.machine_id):
            try:
                await self._drain(work)
            except ArmError as error:
                raise self._planner.refused(error.failure, work) from error

    async def _drain(self, work: Assignment) -> None:
        vm = await self._own(work)
        power = power_of(statuses_of(vm))
        if power in POWERLESS:
            # Started again it would join its cluster as before: it must not be taken for free.
            raise lost(work.machine_id, f"power state VM {power}, and its guest was not drained")
        if self._options.drain_method is GuestMethod.KUBERNETES:
            await self._kubernetes.drain(
                work.cluster,
                work.machine_id,
                vm_id=_vm_id(vm),
                host=work.host,
                grace_seconds=work.grace_seconds,
                keep_node=self._options.bootstrap_method is BootstrapMethod.NONE,
            )
        else:
            body = bootstrap.drain_extension(
                hook=self._options.bootstrap_hook,
                grace_seconds=work.grace_seconds,
                operation_id=work.operation_id,
                machine_id=work.machine_id,
                deadline=work.deadline,
                location=self._options.location,
            )
            await self._run_hook(work, vm, body, None)
        await self._untag(work, vm)

    async def _untag(self, work: Assignment, vm: Json) -> None:
        bound = tags.unbinding_tags(vm.get("tags") or {})
        if not bound:
            return
        reply = await self._vms.clients.delete_tags(str(vm["id"]), bound)
        await self._vms.end(reply, kind="tags", vm=work.machine_id, over=_ask)

    # Shared

    async def _own(self, work: Assignment) -> Json:
        """This machine's VM with its instance view, or the news that it is lost."""
        name = work.machine_id
        vm = await self._vms.clients.get_vm(name, instance_view=True)
        if vm is None or not self._vms.made_by(vm, name, work.created_by, work.parts):
            raise lost(name, "ResourceNotFound: it does not exist")
        if state_of(vm) == "deleting":
            raise lost(name, "it is being deleted")
        return vm

    @property
    def _kubernetes(self) -> "Clusters":
        assert self._clusters is not None, "settings require --kubeconfig-dir for this"
        return self._clusters


def _vm_id(vm: Json) -> str:
    return str((vm.get("properties") or {}).get("vmId") or "")


def _rerun_key(work: Assignment) -> str:
    """What Azure runs the script again for: another operation, or a try whose script never ran.

    The script itself sees to it that the hook runs once for an operation (`guest_script`).
    """
    attempt = work.progress.attempt
    return f"{work.operation_id}.{attempt}" if attempt else work.operation_id


def _key(extension: Json) -> str:
    return str((extension.get("properties") or {}).get("forceUpdateTag") or "")


def _ask(vm: Json | None) -> Over:
    """No list tells: it names a VM's extensions by their ids only (recorded)."""
    return Over.ASK
