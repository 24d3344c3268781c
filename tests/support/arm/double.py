"""`ArmDouble`: the whole double, started on a port of its own with a certificate of its own.

async with ArmDouble(speed=100) as arm:
    arm.endpoint, arm.ca_file, arm.authority     # for the daemon or the SDK
    arm.faults.add(Fault("vm.put", operation=operation_error("AllocationFailed")))
    ...
    arm.ledger.assert_nothing_leaked()
"""

import asyncio
import contextlib
import ssl
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import trustme
from aiohttp import web

from tests.support.arm.access import Access
from tests.support.arm.buckets import Buckets
from tests.support.arm.clock import ArmClock
from tests.support.arm.cloud import Cloud
from tests.support.arm.compute import Compute
from tests.support.arm.disks import Disks
from tests.support.arm.extensions import Extensions
from tests.support.arm.faults import Capacity, Faults, Lists, Quirks, Shortage
from tests.support.arm.graph import Graph
from tests.support.arm.guests import Guest
from tests.support.arm.identity import Identity
from tests.support.arm.ledger import VM, Ledger
from tests.support.arm.market import PATH, Market
from tests.support.arm.metadata import Metadata
from tests.support.arm.network import Network
from tests.support.arm.operations import Operations
from tests.support.arm.parts import Parts
from tests.support.arm.resources import World
from tests.support.arm.server import Handler, Server
from tests.support.arm.tags import Tags
from tests.support.arm.vm_actions import VmActions
from tests.support.arm.vm_lists import VmLists
from tests.support.arm.vms import Vm
from tests.support.arm.wire import Answer, Call, Exchange, refusal


class ArmDouble:
    """See the module. All settings may be changed while it runs."""

    def __init__(
        self,
        *,
        speed: float = 1.0,
        clock: ArmClock | None = None,
        guest: Guest | None = None,
        small_reads: bool = False,
        record: bool = True,
        port: int = 0,
        folder: Path | None = None,
    ) -> None:
        self.clock = clock or ArmClock(speed)
        self.cloud = Cloud(self.clock, guest=guest or Guest(), small_reads=small_reads)
        self.identity = Identity()
        self.metadata = Metadata(self.identity)
        self.market = Market(self.cloud.catalogue, self.clock.now)
        self.graph = Graph(self.cloud.catalogue, self.clock.now)
        parts = Parts(self.cloud)
        self._compute = Compute(self.cloud, parts)
        self._extensions = Extensions(self.cloud, self._compute)
        self.actions = VmActions(self.cloud, self._compute, self._extensions)
        handlers = self._handlers(Network(self.cloud, parts))
        self._server = Server(self.cloud, self.identity, handlers, record=record)
        self._port = port
        self._folder = folder
        self._stack = contextlib.AsyncExitStack()
        self.endpoint = ""
        self.metadata_endpoint = ""
        """For AZURE_POD_IDENTITY_AUTHORITY_HOST, where a daemon is to use a managed identity."""
        self.ca_file = ""

    async def start(self) -> None:
        """Listen, and let time do its part."""
        folder = self._folder or Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="arm-double-"))
        )
        authority = trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.ca_file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
        runner = web.AppRunner(self._server.application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", self._port, ssl_context=context)
        await site.start()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        assert len(runner.addresses) == 2
        self.metadata_endpoint = f"http://127.0.0.1:{runner.addresses[1][1]}"
        self.endpoint = f"https://127.0.0.1:{runner.addresses[0][1]}"
        self.cloud.operations.endpoint = self.endpoint
        self.identity.endpoint = self.endpoint
        self.market.endpoint = self.endpoint
        ticking = asyncio.ensure_future(self.cloud.timeline.run())
        self._stack.push_async_callback(_stop, ticking)
        self._stack.push_async_callback(self._extensions.close)

    async def stop(self) -> None:
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()
        if value is None and self._server.crashes:
            raise AssertionError("the double crashed:\n" + "\n".join(self._server.crashes))

    @property
    def authority(self) -> str:
        """The token service's address for azure-identity."""
        return self.endpoint

    @property
    def prices_endpoint(self) -> str:
        """For --prices-endpoint."""
        return self.endpoint + PATH

    @property
    def exchanges(self) -> list[Exchange]:
        return self._server.exchanges

    @property
    def ledger(self) -> Ledger:
        return self.cloud.ledger

    @property
    def faults(self) -> Faults:
        return self.cloud.faults

    @property
    def capacity(self) -> Capacity:
        return self.cloud.capacity

    @property
    def lists(self) -> Lists:
        return self.cloud.lists

    @property
    def quirks(self) -> Quirks:
        return self.cloud.quirks

    @property
    def buckets(self) -> Buckets:
        return self.cloud.buckets

    @property
    def access(self) -> Access:
        return self.cloud.access

    @property
    def operations(self) -> Operations:
        return self.cloud.operations

    @property
    def world(self) -> World:
        return self.cloud.world

    def vm(self, name: str) -> Vm:
        """The VM of this name, which must be there."""
        self.cloud.timeline.settle()
        return next(each for each in self.vms() if each.name.lower() == name.lower())

    def vms(self) -> list[Vm]:
        return [each for each in self.world.of_type(VM) if isinstance(each, Vm)]

    def evict(self, name: str) -> None:
        self.actions.evict(self.vm(name))

    def shut_down(self, name: str) -> None:
        """Somebody shuts the guest down from inside: stopped, still billed."""
        self.actions.stop(self.vm(name))

    def vanish(self, name: str) -> None:
        """Somebody deletes the VM behind everybody's back."""
        self._compute.end(self.vm(name))

    def shortage(self, code: str | None = None, **what: str | int | bool) -> Shortage:
        """Let there be no room; see `Shortage` for what can be told apart."""
        short = Shortage(code=code, **what)  # type: ignore[arg-type]
        self.capacity.shortages.append(short)
        return short

    def _handlers(self, network: Network) -> dict[str, Handler]:
        cloud, compute, actions = self.cloud, self._compute, self.actions
        lists, tags, disks = VmLists(cloud), Tags(cloud), Disks(cloud)
        extensions = self._extensions
        handlers: dict[str, Handler] = {
            "vm.put": compute.put,
            "vm.get": compute.get,
            "vm.patch": compute.patch,
            "vm.delete": compute.delete,
            "vm.instance-view": compute.instance_view,
            "vm.start": actions.start,
            "vm.restart": actions.restart,
            "vm.power-off": actions.power_off,
            "vm.deallocate": actions.deallocate,
            "vm.reimage": actions.reimage,
            "vm.simulate-eviction": actions.simulate_eviction,
            "vm.boot-diagnostics": actions.boot_diagnostics,
            "vm.list": lists.of_group,
            "vm.list-all": lists.of_subscription,
            "vm.list-location": lists.of_location,
            "extension.put": extensions.put,
            "extension.get": extensions.get,
            "extension.list": extensions.of_vm,
            "extension.delete": extensions.delete,
            "compute.operation": cloud.operations.poll,
            "network.operation": cloud.operations.poll,
            "network.result": cloud.operations.result,
            "compute.usages": cloud.usages.compute,
            "network.usages": cloud.usages.network,
            "skus": cloud.catalogue.listed,
            "disk.get": disks.get,
            "disk.list": disks.listed,
            "disk.list-all": disks.listed,
            "disk.delete": disks.delete,
            "platform-image.get": cloud.images.get_platform,
            "platform-image.list": cloud.images.list_platform,
            "nic.put": network.put_nic,
            "nic.delete": network.delete_nic,
            "ip.put": network.put_address,
            "ip.delete": network.delete_address,
            "tags.get": tags.get,
            "tags.put": tags.put,
            "tags.patch": tags.patch,
            "tags.delete": tags.delete,
            "group.get": network.get_group,
            "subscription.get": network.get_subscription,
            "provider.get": network.get_provider,
            "provider.register": network.register_provider,
            "graph.query": self.graph.query,
            "prices": self.market.answer,
            "token": self.identity.token,
            "metadata.token": self.metadata.token,
            "openid-configuration": self.identity.configuration,
            "instance-discovery": self.identity.discovery,
            "blob": self._blob,
        }
        handlers |= dict.fromkeys(("nic.get", "ip.get"), network.get)
        handlers |= dict.fromkeys(("nic.patch", "ip.patch"), network.patch_tags)
        handlers |= dict.fromkeys(
            ("nic.list", "nic.list-all", "ip.list", "ip.list-all"), network.listed
        )
        seeded = (
            "image.get",
            "gallery-image.get",
            "gallery-version.get",
            "subnet.get",
            "vnet.get",
            "resource.get",
        )
        return handlers | dict.fromkeys(seeded, network.get_seeded)

    def _blob(self, call: Call) -> Answer:
        """Storage: what boot diagnostics pointed to."""
        for vm in self.vms():
            if vm.vm_id == call.parameters["vmId"] and "sig" in call.query:
                return Answer(200, self.cloud.guest.serial_log(vm))
        raise refusal(404, "BlobNotFound", "The specified blob does not exist.")


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
