"""Which recordings are sent again, step by step, and what has to be there first.

One `Plan` per file of `data/wire` that holds traffic. A step that is left out has its reason here;
what the double does not claim to speak is left out without being named. How a plan is carried out
is in `replay`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.arm.truth.recordings import TRAFFIC, Recorded, load, of_file
from tests.support.arm.truth.routes import UNSPOKEN
from tests.support.arm.truth.seeding import ip_body, nic_body, vm_body

_SUB = "/subscriptions/00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Made:
    """A resource that is made over the wire before the first step."""

    path: str
    body: Mapping[str, Any]
    operation: str | None = None
    """The recorded operation that this one's stands for, when the recording begins with polls."""


@dataclass(frozen=True)
class Plan:
    """How one recording is sent again."""

    file: str
    exists: tuple[int, ...] = ()
    """Steps whose recorded answers show what must be there before."""
    made: tuple[Made, ...] = ()
    left_out: Mapping[int, str] = field(default_factory=dict)
    at_once: frozenset[int] = frozenset()
    """Steps that follow without waiting for the operation before them to end."""
    absent: tuple[str, ...] = ()
    """Parts of paths that must not be there: the recording shows how they are missed."""
    excused: Mapping[str, str] = field(default_factory=dict)
    """Parts of places that the double does not claim to know, each with the reason."""
    script: str = ""
    """What goes wrong on purpose: a name that the stage knows."""

    def steps(self) -> list[Recorded]:
        return [
            recorded
            for recorded in of_file(self.file)
            if recorded.route != UNSPOKEN and recorded.index not in self.left_out
        ]


def _vm(group: str, name: str, nic: str, location: str, **more: Any) -> Made:
    base = f"{_SUB}/resourceGroups/{group}/providers"
    return Made(
        f"{base}/Microsoft.Compute/virtualMachines/{name}",
        vm_body(location, f"{base}/Microsoft.Network/networkInterfaces/{nic}", **more),
    )


def _extension(vm: Made, name: str, publisher: str, kind: str, **more: Any) -> Made:
    body = {
        "location": vm.body["location"],
        "properties": {"publisher": publisher, "type": kind, "typeHandlerVersion": "1.0"},
    }
    return Made(f"{vm.path}/extensions/{name}", body, **more)


def _dependents() -> tuple[Made, ...]:
    group, location = "cli_test_delete_dependent_resources000001", "southcentralus"
    network = f"{_SUB}/resourceGroups/{group}/providers/Microsoft.Network"
    ip = f"{network}/publicIPAddresses/cli-test-vm000002PublicIP"
    nic = f"{network}/networkInterfaces/cli-test-vm000002VMNic"
    subnet = f"{network}/virtualNetworks/cli-test-vm000002VNET/subnets/cli-test-vm000002Subnet"
    return (
        Made(ip, ip_body(location)),
        Made(nic, nic_body(location, subnet, ip)),
        _vm(group, "cli-test-vm000002", "cli-test-vm000002VMNic", location),
    )


_GUEST_VMS = tuple(
    _vm("cli_test_vm_extension", name, f"{name}nic", "westus") for name in ("myvm", "myvm2")
)


def _in_group_of(file: str, made: tuple[Made, ...]) -> tuple[Made, ...]:
    """Move what is made into the group that a recording speaks of."""
    parts = next(each.path for each in of_file(file) if "/resourceGroups/" in each.path).split("/")
    group = parts[parts.index("resourceGroups") + 1]
    old = made[0].path.split("/")[4]

    def moved(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(f"/resourceGroups/{old}/", f"/resourceGroups/{group}/")
        if isinstance(value, Mapping):
            return {key: moved(inner) for key, inner in value.items()}
        return [moved(inner) for inner in value] if isinstance(value, list) else value

    return tuple(Made(moved(each.path), moved(each.body), each.operation) for each in made)


def _named(file: str, name: str, location: str, **more: Any) -> tuple[Made, ...]:
    return _in_group_of(file, (_vm("group", name, f"{name}-nic", location, **more),))


def _lro_failed() -> tuple[Made, ...]:
    vm = _named("extension-lro-failed.json", "monitorvm", "eastus")
    return (*vm, _extension(vm[0], "OmsAgentForLinux", "Microsoft.Azure.Monitor", "OmsAgent"))


def _agent_silent() -> tuple[Made, ...]:
    vm = _named("vm-lro-failed-agent-timeout.json", "vm-000003", "westus")
    publisher, kind = "Microsoft.Azure.Security.LinuxAttestation", "GuestAttestation"
    first = "00000000-0000-4000-8000-000000000001"
    return (*vm, _extension(vm[0], "GuestAttestation", publisher, kind, operation=first))


_LINUX_ONLY = {
    ".windowsConfiguration.": "the double fills in Linux machines only",
    ".dataDisks[": "the double makes no disks but the one that the machine starts from",
}
_EVICTED = "vm-get-expand-instanceview-spot-evicted.json"
_PYTHON_VM = "virtualmachinexeb772750"

PLANS: tuple[Plan, ...] = (
    Plan("aad-token-and-discovery.json"),
    Plan("compute-usages-westus-2019.json"),
    Plan("compute-usages-westus.json"),
    Plan(
        "delete-vm-and-dependents.json",
        made=_dependents(),
        left_out={12: "a poll of a security group's delete, which the double does not know"},
        at_once=frozenset({1, 3}),
    ),
    Plan("errors-400-invalidresourcereference.json", absent=("/virtualNetworks/",)),
    Plan("errors-404-more.json", absent=("asotest-rg-vdecpn",)),
    Plan("errors-404.json"),
    Plan(
        "extension-create-get-delete.json",
        made=_named("extension-create-get-delete.json", "asotest-vm-kpauzd", "westus2"),
    ),
    Plan(
        "extension-failed-vmss-ade.json",
        left_out={0: "an operation of a scale set, which the double does not know"},
    ),
    Plan(
        "extension-guestattestation.json",
        made=_in_group_of("extension-guestattestation.json", _GUEST_VMS),
    ),
    Plan("extension-lro-failed.json", made=_lro_failed(), script="extension-fails"),
    Plan("extension-vmaccess-instanceview.json", exists=(2,)),
    Plan("network-429-retryable-more.json", script="network-retryable"),
    Plan(
        "network-lro-failed.json",
        left_out={0: "an operation of a gateway, which the double does not know"},
    ),
    Plan("network-usages-westus.json"),
    Plan(
        "nic-create-get-list-delete-pysdk.json",
        left_out={1: "the newest recording of a NIC's PUT gives no operation, nor does the double"},
    ),
    Plan("nic-create-westus2.json"),
    Plan("nic-list-subscription.json", exists=(0,)),
    Plan("nic-update-list-delete.json"),
    Plan("publicip-create-delete.json"),
    *(
        Plan(f"resource-skus-{name}.json")
        for name in (
            "2017-api",
            "2020",
            "2020-b",
            "eastus-skewer",
            "southcentralus-2025",
            "westcentralus-2024",
        )
    ),
    Plan("resourcegraph-objectarray.json", script="graph-rows"),
    Plan(
        "resourcegraph-table-vm.json",
        left_out={0: "the query was not recorded; only its answer is compared with"},
    ),
    Plan("retail-d2als-v7-eastus.json", script="sold"),
    Plan("retail-d2s-v3-eastus.json", script="sold"),
    Plan("retail-errors-and-empty.json"),
    Plan("retail-first-page-with-next.json", script="sold"),
    Plan("retail-mixed-older.json", script="sold"),
    Plan(
        "runcommand-action-powershell.json",
        made=_named("runcommand-action-powershell.json", _PYTHON_VM, "eastus"),
        left_out=dict.fromkeys((2, 3, 4), "polls of a run command, which the double does not know"),
    ),
    Plan("spot-vm-create-evict-delete.json", excused=_LINUX_ONLY),
    Plan("vm-create-delete-20201201.json", left_out={13: "the delete before it was not recorded"}),
    Plan("vm-create-eastus-then-instanceview.json", excused=_LINUX_ONLY),
    Plan("vm-create-longurl.json"),
    Plan("vm-create-update-delete.json"),
    Plan("vm-evicted-older-api.json", exists=(0, 3)),
    Plan("vm-evicted-policy-delete.json", exists=(0,)),
    Plan(
        "vm-get-expand-instanceview-spot-evicted.json",
        exists=(0,),
        made=_named(
            "vm-get-expand-instanceview-spot-evicted.json", "vm-simualte-eviction1", "westus"
        ),
    ),
    Plan("vm-list-count-many.json", exists=(0,)),
    Plan("vm-list-count3.json", exists=(0,)),
    Plan("vm-list-subscription-location.json", exists=(0,)),
    Plan("vm-lro-failed-agent-timeout.json", made=_agent_silent(), script="agent-silent"),
    Plan(
        "vm-patch-deallocate-start.json",
        made=_named("vm-patch-deallocate-start.json", "vm-state-mod", "westus"),
    ),
)


def unplanned() -> set[str]:
    """Files with traffic of spoken routes that have no plan; there should be none."""
    spoken = {
        recorded.file
        for recorded in load()
        if recorded.fidelity == TRAFFIC and recorded.route != UNSPOKEN
    }
    return spoken - {plan.file for plan in PLANS}
