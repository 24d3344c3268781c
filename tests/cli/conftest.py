"""A daemon of few words: real gRPC, scripted answers."""

import threading
from concurrent import futures
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from bigfleet_azure._pb import provider_pb2 as pb
from bigfleet_azure._pb import provider_pb2_grpc
from bigfleet_azure.cli.commands import bigfleet_azure


class FakeDaemon(provider_pb2_grpc.CapacityProviderServicer):
    """Answers from `machines`; `script` holds what later Gets make of a machine."""

    def __init__(self):
        self.server: Any = None
        self.port = 0
        self.address = ""
        self.machines = {}
        self.script = {}
        self.refusal = None
        self.requests = []
        self.deltas = []
        self.called = threading.Event()
        self.asked = threading.Event()
        self.hold: threading.Event | None = None

    def add(self, machine_id, state="SPECULATIVE", **fields):
        machine = pb.Machine(
            id=machine_id,
            state=pb.MachineState.Value(f"MACHINE_STATE_{state}"),
            instance_type="Standard_D4s_v5",
            zone="eastus-1",
            capacity_type=pb.CAPACITY_TYPE_ON_DEMAND,
            price_per_hour=0.192,
            **fields,
        )
        self.machines[machine_id] = machine
        return machine

    def will_be(self, machine_id, *states, last_error=""):
        """Each Get moves the machine one state on."""
        self.script[machine_id] = [(state, last_error) for state in states]

    def Get(self, request, context):
        self._note(request, context)
        if request.id not in self.machines:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no machine {request.id!r}")
        if self.script.get(request.id):
            state, last_error = self.script[request.id].pop(0)
            self.machines[request.id].state = pb.MachineState.Value(f"MACHINE_STATE_{state}")
            self.machines[request.id].last_error = last_error if state == "FAILED" else ""
        return self.machines[request.id]

    def List(self, request, context):
        self._note(request, context)
        if request.since_revision:
            self.asked.set()
            changed = self.deltas.pop(0) if self.deltas else []
            if isinstance(changed, grpc.StatusCode):
                context.abort(changed, "not now")
            return pb.MachineList(machines=changed, revision=b"next")
        wanted = set(request.states)
        return pb.MachineList(
            machines=[m for m in self.machines.values() if not wanted or m.state in wanted],
            revision=b"first",
        )

    def Create(self, request, context):
        return self._mutate(request, context, "CREATING")

    def Configure(self, request, context):
        return self._mutate(request, context, "CONFIGURING")

    def Drain(self, request, context):
        return self._mutate(request, context, "DRAINING")

    def Delete(self, request, context):
        return self._mutate(request, context, "DELETING")

    def _mutate(self, request, context, state):
        self._note(request, context)
        machine = self.machines[request.machine_id]
        machine.state = pb.MachineState.Value(f"MACHINE_STATE_{state}")
        return pb.TransitionAck(operation_id="op-1", machine=machine)

    def _note(self, request, context):
        self.requests.append(request)
        self.called.set()
        if self.hold:
            self.hold.wait(60)
        if self.refusal:
            context.abort(*self.refusal)


def serve(daemon, credentials=None):
    """Serve `daemon` on a free port; returns the server and its port."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    provider_pb2_grpc.add_CapacityProviderServicer_to_server(daemon, server)
    if credentials:
        port = server.add_secure_port("localhost:0", credentials)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


@pytest.fixture
def fake():
    """The scripted daemon, served on `fake.address` (`fake.port`)."""
    daemon = FakeDaemon()
    daemon.server, daemon.port = serve(daemon)
    daemon.address = f"127.0.0.1:{daemon.port}"
    yield daemon
    daemon.server.stop(None).wait()


@pytest.fixture
def run(monkeypatch):
    """Run a command line against no particular daemon."""
    # The program sets it for its own process; here it must not outlive the test.
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")

    def run(*arguments, stdin=None, env=None):
        return CliRunner().invoke(bigfleet_azure, list(arguments), input=stdin, env=env)

    return run


@pytest.fixture
def machines(run, fake):
    """Run `machines …` against the scripted daemon."""

    def machines(command, *arguments, stdin=None):
        return run("machines", command, *arguments, "--addr", fake.address, stdin=stdin)

    return machines
