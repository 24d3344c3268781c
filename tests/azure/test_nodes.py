"""Readiness and drain by Kubernetes, and images that join by themselves, in the whole daemon."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from tests.support.arm.guests import Guest, ScriptResult
from tests.support.azure import Site, until
from tests.support.kube.fake import FakeCluster
from tests.support.kube.objects import node_document, pod_document, write_kubeconfig

CLUSTER = "blue"
BOTH = ("--readiness=kubernetes", "--drain-method=kubernetes")
TALOS = (*BOTH, "--bootstrap-method=none", f"--cluster-id={CLUSTER}")


class Kubelets(Guest):
    """Guests whose kubelets register: when the hook runs, or at the start of images without one."""

    def __init__(self, cluster: FakeCluster, *, joins_by_itself: bool) -> None:
        self.cluster = cluster
        self.joins_by_itself = joins_by_itself
        self.silent = False
        self.now = lambda: 0.0

    def booted(self, vm) -> None:
        if self.joins_by_itself:
            self.joins(vm)

    def run(self, vm, script):
        if "--drain" not in script:
            self.joins(vm)
        return ScriptResult()

    def joins(self, vm, **how) -> None:
        if not self.silent:
            given = {"system_uuid": vm.vm_id, "heartbeat": self.now() + 1, **how}
            self.cluster.put_node(node_document(vm.name, **given), created=self.now())


@asynccontextmanager
async def clustered(folder, *flags, joins_by_itself=False, **more):
    """A site and the cluster whose kubeconfig it has."""
    kubeconfigs = folder / "kubeconfigs"
    kubeconfigs.mkdir()
    async with FakeCluster().serve() as fake:
        write_kubeconfig(kubeconfigs / CLUSTER, fake.url, {"token": fake.token})
        guest = Kubelets(fake, joins_by_itself=joins_by_itself)
        async with Site(
            folder, *flags, f"--kubeconfig-dir={kubeconfigs}", guest=guest, **more
        ) as site:
            guest.now = site.arm.clock.now
            yield site, fake, guest


@pytest.mark.behaviour(76)
async def test_a_machine_is_configured_only_when_its_node_reports_ready(tmp_path):
    async with clustered(tmp_path, *BOTH) as (site, _fake, guest):
        [machine] = await site.ids(1)
        await site.idle(machine)
        guest.silent = True
        await site.configure(machine, CLUSTER)
        await until(lambda: site.arm.ledger.scripts)
        await site.passes(120)
        assert (await site.get(machine)).state == pb.MACHINE_STATE_CONFIGURING
        guest.silent = False
        guest.joins(site.arm.vm(machine), ready="False")
        await site.passes(60)
        assert (await site.get(machine)).state == pb.MACHINE_STATE_CONFIGURING
        guest.joins(site.arm.vm(machine))
        await site.reaches(machine, "CONFIGURED")


@pytest.mark.behaviour(77)
@pytest.mark.parametrize("kind", ["foreign", "earlier"])
async def test_a_node_of_another_machine_or_of_an_earlier_life_does_not_count(tmp_path, kind):
    flags = (*BOTH, "--configure-timeout=10m", "--failed-dwell=0")
    async with clustered(tmp_path, *flags) as (site, fake, guest):
        [machine] = await site.ids(1)
        await site.idle(machine)
        guest.silent = True
        vm = site.arm.vm(machine)
        other = "99999999-1111-4111-8111-111111111111"
        # The same machine's kubelet, whose last word is older than this binding.
        system_uuid, at = (other, 10**6) if kind == "foreign" else (vm.vm_id, -3600)
        document = node_document(
            machine, system_uuid=system_uuid, heartbeat=site.arm.clock.now() + at
        )
        fake.put_node(document, created=site.arm.clock.now() - 7200)
        await site.configure(machine, CLUSTER)
        failed = await site.reaches(machine, "FAILED")
        assert "configure deadline exceeded" in failed.last_error


async def test_a_drain_evicts_within_the_grace_and_deletes_the_node(tmp_path):
    async with clustered(tmp_path, *BOTH) as (site, fake, _guest):
        [machine] = await site.ids(1)
        await site.configured(machine, cluster=CLUSTER)
        fake.put_pod(pod_document("web", machine))
        fake.put_pod(pod_document("proxy", machine, owner="DaemonSet"))
        await site.drain(machine, 60)
        await site.reaches(machine, "IDLE")
        assert [body["metadata"]["name"] for body in fake.evictions] == ["web"]
        assert machine not in fake.nodes
        assert "bigfleet-cluster" not in site.arm.vm(machine).tags


async def test_a_kubeconfig_that_is_missing_holds_the_operation_and_is_named_at_its_deadline(
    tmp_path,
):
    flags = (*BOTH, "--configure-timeout=5m", "--failed-dwell=0")
    async with clustered(tmp_path, *flags) as (site, fake, _guest):
        first, second = await site.ids(2)
        await asyncio.gather(site.idle(first), site.idle(second))
        await site.configure(first, "green")
        failed = await site.reaches(first, "FAILED")
        assert str(tmp_path / "kubeconfigs" / "green") in failed.last_error
        await site.configure(second, "yellow")
        await site.passes(30)
        assert (await site.get(second)).state == pb.MACHINE_STATE_CONFIGURING
        write_kubeconfig(tmp_path / "kubeconfigs" / "yellow", fake.url, {"token": fake.token})
        await site.reaches(second, "CONFIGURED")


@pytest.mark.parametrize(
    "flags", [BOTH, BOTH[:1], BOTH[1:]], ids=["both", "readiness", "drain-method"]
)
async def test_a_cluster_id_that_is_no_file_name_is_refused_before_anything_is_written(
    tmp_path, flags
):
    async with clustered(tmp_path, *flags) as (site, _fake, _guest):
        [machine] = await site.ids(1)
        await site.idle(machine)
        calls = len(site.arm.ledger.calls)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await site.configure(machine, "../blue")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "'../blue'" in str(caught.value.details())
        await site.passes(30)
        found = await site.get(machine)
        assert (found.state, found.cluster) == (pb.MACHINE_STATE_IDLE, "")
        assert not [call for call in site.arm.ledger.calls[calls:] if call.method != "GET"]


async def test_a_talos_machine_gets_its_config_at_birth_and_never_an_extension(tmp_path):
    """E13: no agent runs, and customData is read once."""
    config = b"version: v1alpha1\nmachine:\n  type: worker\n\xff"
    (tmp_path / "worker.yaml").write_bytes(config)
    flags = (*TALOS, f"--base-user-data={tmp_path / 'worker.yaml'}", "--ip-forwarding")
    async with clustered(tmp_path, *flags, joins_by_itself=True) as (site, fake, _guest):
        [machine] = await site.ids(1)
        await site.configured(machine, cluster=CLUSTER, a="b")
        vm = site.arm.vm(machine)
        assert vm.custom_bytes == config
        assert vm.os_profile["allowExtensionOperations"] is False
        fake.put_pod(pod_document("web", machine))
        await site.drain(machine, 30)
        await site.reaches(machine, "IDLE")
        # A kubelet registers at its start only: the Node stays, cordoned.
        assert fake.nodes[machine]["spec"]["unschedulable"] is True
        assert "web" not in fake.pods
        await site.configure(machine, CLUSTER)
        await site.reaches(machine, "CONFIGURED")
        assert not fake.nodes[machine]["spec"].get("unschedulable")
        assert site.arm.ledger.count("extension.put") == 0


async def test_a_machine_that_joins_by_itself_takes_no_other_cluster(tmp_path):
    async with clustered(tmp_path, *TALOS, joins_by_itself=True) as (site, _fake, _guest):
        [machine] = await site.ids(1)
        await site.idle(machine)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await site.configure(machine, "green")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert CLUSTER in str(caught.value.details())
        assert (await site.get(machine)).state == pb.MACHINE_STATE_IDLE


async def test_waiting_for_a_node_ends_when_its_vm_is_gone(tmp_path):
    async with clustered(tmp_path, *BOTH, "--failed-dwell=0", keep=()) as (site, _fake, guest):
        [machine] = await site.ids(1)
        await site.idle(machine)
        guest.silent = True
        await site.configure(machine, CLUSTER)
        await until(lambda: site.arm.ledger.scripts)
        await site.passes(60)
        site.arm.vanish(machine)
        failed = await site.reaches(machine, "FAILED")
        assert "lost" in failed.last_error
