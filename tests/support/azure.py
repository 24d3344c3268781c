"""The whole daemon over the ARM double, in one process and on one clock.

async with Site(tmp_path, speed=200) as site:
    [machine] = await site.ids(1)
    await site.create(machine)
    await site.reaches(machine, "IDLE")
    await site.kill(); await site.boot()         # as after a SIGKILL
    await site.wipe()                            # the store is lost

At the end nothing may be doubled, every exchange has to be true to Azure's descriptions, and,
unless a test says otherwise, nothing may be left that no machine holds.
"""

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import grpc

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure._pb import provider_pb2_grpc as pb_grpc
from bigfleet_azure.backends.azure.options import AzureOptions, Credentials, VmProfile
from bigfleet_azure.daemon.app import Daemon
from bigfleet_azure.daemon.settings import resolve
from bigfleet_azure.domain.secret import Secret
from tests.support.arm.cloud import GROUP, LOCATION, SUBSCRIPTION
from tests.support.arm.double import ArmDouble
from tests.support.arm.identity import CLIENT, SECRET, TENANT
from tests.support.arm.truth.holding import Truth

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEyAUFGPAbN8CqmM4q4mMCb2EG4kFNbBc2Xb7vYJ0dIu test"

PATIENCE = [f"--{kind}-timeout=2h" for kind in ("create", "configure", "drain", "delete")]
"""At three hundred times the usual speed the usual minutes are over before a test has looked."""

_PORTS = 12_000, 32_000

_WIDE = [
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
    ("grpc.max_send_message_length", 256 * 1024 * 1024),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 50),
]


def environment(arm: ArmDouble) -> dict[str, str]:
    """What the daemon finds in its environment to be somebody to the double."""
    return {
        "AZURE_TENANT_ID": TENANT,
        "AZURE_CLIENT_ID": CLIENT,
        "AZURE_CLIENT_SECRET": SECRET,
        "AZURE_AUTHORITY_HOST": arm.authority,
    }


def azure_flags(arm: ArmDouble) -> list[str]:
    """The flags that point a daemon at the double."""
    return [
        "--azure-backend=azure",
        f"--location={LOCATION}",
        f"--subscription-id={SUBSCRIPTION}",
        f"--resource-group={GROUP}",
        f"--subnet-id={arm.cloud.subnet_id}",
        f"--arm-endpoint={arm.endpoint}",
        f"--arm-ca={arm.ca_file}",
        f"--prices-endpoint={arm.prices_endpoint}",
    ]


def azure_options(arm: ArmDouble, **changes: Any) -> AzureOptions:
    """The same as facts, for a backend without a daemon around it."""
    given: dict[str, Any] = {
        "subscription_id": SUBSCRIPTION,
        "resource_group": GROUP,
        "location": LOCATION,
        "owner": "azure/eastus",
        "profile": VmProfile(subnet_id=arm.cloud.subnet_id, ssh_public_key=KEY),
        "credentials": Credentials(
            tenant_id=TENANT,
            client_id=CLIENT,
            client_secret=Secret(SECRET.encode()),
            authority=arm.authority,
        ),
        "arm_endpoint": arm.endpoint,
        "arm_ca": Path(arm.ca_file),
    }
    return AzureOptions(**{**given, **changes})


async def until(holds: Callable[[], object], within: float = 20.0) -> None:
    """Wait (real seconds) for what nobody tells about."""
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110 - the double has no events for what tests ask
            await asyncio.sleep(0.01)


class Site:
    """See the module.

    Args:
        folder: where the state file lives.
        flags: further flags of the daemon.
        speed: Azure seconds in a real one.
        seed_count: slots of the built-in mix: on-demand and spot, in zones 1 and 2.
        keep: names of VMs that may be there at the end; None asks only for parts and shells.
        leaks: whether anything may be left.
        env: the daemon's environment; None = that of a service principal.
        double: further arguments of the double.
    """

    def __init__(
        self,
        folder: Path,
        *flags: str,
        speed: float = 300.0,
        seed_count: int = 8,
        keep: Collection[str] | None = None,
        leaks: bool = False,
        true: bool = True,
        arm: ArmDouble | None = None,
        env: Mapping[str, str] | None = None,
        **double: Any,
    ) -> None:
        self.arm = arm or ArmDouble(speed=speed, **double)
        self._owns_arm = arm is None
        self.state = folder / "state.db"
        self._flags = [f"--seed-count={seed_count}", *PATIENCE, *flags]
        self._keep, self._leaks, self._true = keep, leaks, true
        self._env = env
        self._task: asyncio.Task[None] | None = None
        self._channel: grpc.aio.Channel | None = None
        self.daemon: Daemon | None = None
        self.http = 0

    async def __aenter__(self) -> Self:
        if self._owns_arm:
            await self.arm.start()
            self.arm.operations.retry_after.none()
        await self.boot()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.kill()
        if self._owns_arm:
            await self.arm.__aexit__(kind, value, traceback)
        if value is None:
            self.arm.ledger.assert_nothing_doubled()
            if not self._leaks:
                self.arm.ledger.assert_nothing_leaked(self._keep)
            if self._true:
                Truth().assert_held(self.arm.exchanges)

    # Life

    async def boot(self, *flags: str, wait: bool = True) -> None:
        """Start the daemon; with `wait`, until it serves."""
        port, self.http = _free_port(), _free_port()
        settings = resolve(
            [
                *azure_flags(self.arm),
                f"--addr=127.0.0.1:{port}",
                f"--metrics-addr=127.0.0.1:{self.http}",
                f"--state={self.state}",
                *self._flags,
                *flags,
            ],
            environment(self.arm) if self._env is None else self._env,
            lambda path: Path(path).read_bytes(),
        )
        self.daemon = Daemon(settings, self.arm.clock)
        self._task = asyncio.create_task(self.daemon.serve(), name="daemon")
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_WIDE)
        if wait:
            serving = asyncio.create_task(self.machines(wait_for_ready=True))
            await asyncio.wait({serving, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                serving.cancel()
                await self._task
                raise AssertionError("the daemon stopped before it served")
            await serving

    async def kill(self) -> None:
        """End the daemon as a SIGKILL would: nothing of what it does is finished."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        if self._task is None:
            return
        task, self._task = self._task, None
        if not task.done():
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        logging.getLogger().handlers[:] = [
            h for h in logging.getLogger().handlers if "structlog" not in type(h).__module__
        ]

    async def wipe(self) -> None:
        """Lose the store."""
        await self.kill()
        for path in self.state.parent.glob(f"{self.state.name}*"):
            path.unlink()

    async def passes(self, seconds: float) -> None:
        """Let so many Azure seconds pass."""
        await self.arm.clock.sleep(seconds)

    # What a shard does

    @property
    def stub(self) -> pb_grpc.CapacityProviderStub:
        assert self._channel is not None
        return pb_grpc.CapacityProviderStub(self._channel)

    async def _call(self, method: str, request: Any, **call: Any) -> Any:
        return await getattr(self.stub, method)(request, **call)

    async def listed(self, **call: Any) -> pb.MachineList:
        answer: pb.MachineList = await self._call("List", pb.ListFilter(), timeout=60, **call)
        return answer

    async def machines(self, **call: Any) -> dict[str, pb.Machine]:
        return {machine.id: machine for machine in (await self.listed(**call)).machines}

    async def ids(self, count: int, kind: str = "od") -> list[str]:
        """Ids of unused slots: `od` or `spot`."""
        found = sorted(
            machine.id
            for machine in (await self.machines()).values()
            if machine.state == pb.MACHINE_STATE_SPECULATIVE and f"-{kind}-" in machine.id
        )
        assert len(found) >= count, found
        return found[:count]

    async def get(self, machine: str) -> pb.Machine:
        found: pb.Machine = await self._call("Get", pb.MachineRef(id=machine), timeout=30)
        return found

    async def create(self, machine: str) -> pb.TransitionAck:
        ack: pb.TransitionAck = await self._call(
            "Create", pb.CreateRequest(machine_id=machine), timeout=30
        )
        return ack

    async def configure(
        self, machine: str, cluster: str = "blue", blob: bytes = b"join me", **metadata: str
    ) -> pb.TransitionAck:
        request = pb.ConfigureRequest(
            machine_id=machine, cluster_id=cluster, bootstrap_blob=blob, shard_metadata=metadata
        )
        ack: pb.TransitionAck = await self._call("Configure", request, timeout=30)
        return ack

    async def drain(self, machine: str, grace: int = 0) -> pb.TransitionAck:
        request = pb.DrainRequest(machine_id=machine, grace_period_seconds=grace)
        ack: pb.TransitionAck = await self._call("Drain", request, timeout=30)
        return ack

    async def delete(self, machine: str) -> pb.TransitionAck:
        ack: pb.TransitionAck = await self._call(
            "Delete", pb.DeleteRequest(machine_id=machine), timeout=30
        )
        return ack

    async def reaches(
        self, machine: str, *states: str, within: float = 20.0, by_list: bool = False
    ) -> pb.Machine:
        """Wait (real seconds) until the machine is in one of the states."""
        wanted = [pb.MachineState.Value(f"MACHINE_STATE_{state}") for state in states]
        found = pb.Machine()
        try:
            async with asyncio.timeout(within):
                while True:
                    if by_list:
                        found = (await self.machines()).get(machine, pb.Machine())
                    else:
                        found = await self.get(machine)
                    if found.state in wanted:
                        return found
                    await asyncio.sleep(0.02)
        except TimeoutError:
            name = pb.MachineState.Name(found.state)
            raise AssertionError(f"{machine} is {name}, not {states}: {found}") from None

    async def idle(self, machine: str) -> pb.Machine:
        """Create it and wait until it is IDLE."""
        await self.create(machine)
        return await self.reaches(machine, "IDLE")

    async def configured(self, machine: str, **more: Any) -> pb.Machine:
        """Create it, configure it, and wait until it is CONFIGURED."""
        await self.idle(machine)
        await self.configure(machine, **more)
        return await self.reaches(machine, "CONFIGURED")

    # What an operator sees

    async def page(self, path: str) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.http}{path}") as answer,
        ):
            return answer.status, await answer.text()

    async def shows(self, *texts: str, status: int = 200, within: float = 20.0) -> str:
        """Wait until `/readyz?verbose` has the status and all the texts."""
        last: object = None
        try:
            async with asyncio.timeout(within):
                while True:
                    with suppress(aiohttp.ClientError):
                        last = status_found, text = await self.page("/readyz?verbose")
                        if status_found == status and all(one in text for one in texts):
                            return text
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not shown: {texts}; last seen: {last}") from None

    async def metric(self, name: str, **labels: str) -> float:
        """The value of one sample; 0 when it is not there."""
        _, text = await self.page("/metrics")
        for line in text.splitlines():
            named = line.startswith((f"{name}{{", f"{name} "))
            if named and all(f'{k}="{v}"' in line for k, v in labels.items()):
                return float(line.rpartition(" ")[2])
        return 0.0


def _free_port() -> int:
    """A port from below those that the system gives to connections: none takes it meanwhile."""
    while True:
        port = random.randrange(*_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
