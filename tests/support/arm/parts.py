"""The parts of a VM: interfaces, addresses and the OS disk are born with it and end with it.

An inline interface is not called what its configuration is called. What a failed create leaves is
reserved for a while, and its names cannot be used again.
"""

from typing import Any

from tests.support.arm.cloud import Cloud
from tests.support.arm.ledger import DISK, NIC, PUBLIC_IP
from tests.support.arm.network_models import NetworkModels
from tests.support.arm.resources import Nic, Resource, guid, resource_id
from tests.support.arm.vms import Vm
from tests.support.arm.wire import Json, Refusal, refusal


def reserved(nic: Nic, *, by_network: bool = False) -> Refusal:
    """The refusal of a reserved NIC; Network gives every error a list of details."""
    return refusal(
        400,
        "NicReservedForAnotherVm",
        "Nic(s) in request is reserved for another Virtual Machine for 180 seconds. Please provide "
        f"another nic(s) or retry after 180 seconds. Reserved VM: {nic.reserved_for}",
        details=[] if by_network else None,
    )


class Parts:
    """Birth and end of the parts."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self.models = NetworkModels(cloud)
        self._reserved: dict[tuple[str, str], Nic] = {}

    def addresses_wanted(self, properties: Json) -> int:
        """Public addresses that an inline configuration asks for."""
        return sum(
            1
            for configuration in _configurations(properties)
            for each in configuration["properties"].get("ipConfigurations") or []
            if (each.get("properties") or {}).get("publicIPAddressConfiguration")
        )

    def check(self, vm: Vm) -> None:
        """Names that are taken, interfaces that are held, subnets that are full."""
        self._check_disk(vm)
        for configuration in _configurations(vm.sent):
            self._check_configuration(vm, str(configuration["name"]))
        for reference in vm.sent["networkProfile"].get("networkInterfaces") or []:
            nic = self._cloud.world.get(reference["id"])
            assert isinstance(nic, Nic), reference
            if nic.vm is not None and nic.vm.lower() != vm.key:
                raise refusal(
                    400,
                    "NicInUse",
                    f"Network Interface {nic.id} is used by existing resource {nic.vm}. In order "
                    "to delete the network interface, it must be dissociated from the resource. "
                    "To learn more, see aka.ms/deletenic.",
                    details=[],
                )
            if self.is_reserved(nic):
                raise reserved(nic)
        self._check_subnets(vm)

    def is_reserved(self, nic: Nic) -> bool:
        return nic.reserved_for is not None and nic.reserved_until > self._cloud.world.now()

    def bear(self, vm: Vm) -> None:
        """Make what the body configures, and take what it refers to."""
        for configuration in _configurations(vm.sent):
            nic = self._bear_nic(vm, configuration)
            vm.nics.append(_reference(nic.id, configuration["properties"]))
        for sent in vm.sent["networkProfile"].get("networkInterfaces") or []:
            found = self._cloud.world.get(sent["id"])
            assert isinstance(found, Nic)
            self.attach(found, vm)
            vm.nics.append({"id": found.id, **_given(sent)})
        self._bear_disk(vm)

    def attach(self, part: Resource, vm: Vm | None) -> None:
        """Say who holds a part."""
        holder = None if vm is None else vm.id
        if isinstance(part, Nic):
            part.vm = holder
        entry = self._cloud.ledger.entry(part.id)
        if entry is not None:
            entry.parent = holder
        if isinstance(part, Nic):
            for address in part.address_options:
                found = self._cloud.world.get(address)
                if found is not None:
                    self.attach(found, vm)

    def reserve(self, vm: Vm) -> None:
        """A create failed: its interfaces stay reserved for it."""
        for reference in vm.nics:
            nic = self._cloud.world.get(reference["id"])
            if isinstance(nic, Nic):
                self._reserve(nic, vm)

    def release(self, vm: Vm, leave: frozenset[str]) -> None:
        """The VM is gone: end what it was to take along, let go of the rest."""
        for reference in vm.nics:
            nic = self._cloud.world.get(reference["id"])
            if not isinstance(nic, Nic):
                continue
            option = (reference.get("properties") or {}).get("deleteOption", "Detach")
            if option == "Delete" and "nic" not in leave:
                self.end_nic(nic, leave)
                continue
            self.attach(nic, None)
            if self._cloud.quirks.reserve_deleted:
                self._reserve(nic, vm)
        disk = self._cloud.world.get(vm.disk.get("id", ""))
        if disk is not None:
            sent = vm.sent["storageProfile"].get("osDisk") or {}
            self.attach(disk, None)
            disk.properties["diskState"] = "Unattached"
            disk.extra.pop("managedBy", None)
            if sent.get("deleteOption") == "Delete" and "disk" not in leave:
                self._cloud.world.remove(disk)

    def end_nic(self, nic: Nic, leave: frozenset[str] = frozenset()) -> None:
        """End an interface, with the addresses that were to go with it."""
        for address, option in nic.address_options.items():
            found = self._cloud.world.get(address)
            if found is None:
                continue
            found.properties.pop("ipConfiguration", None)
            self.attach(found, None)
            if option == "Delete" and "ip" not in leave:
                self._cloud.world.remove(found)
        for each in nic.properties["ipConfigurations"]:
            subnet = self._cloud.subnets.get(each["properties"]["subnet"]["id"].lower())
            if subnet is not None:
                subnet.room += 1
        self._cloud.world.remove(nic)

    def _reserve(self, nic: Nic, vm: Vm) -> None:
        nic.reserved_for = vm.id
        nic.reserved_until = self._cloud.world.now() + self._cloud.quirks.reservation
        self._reserved[vm.key, nic.configuration.lower()] = nic

    def _bear_nic(self, vm: Vm, configuration: Json) -> Nic:
        name = str(configuration["name"])
        identity = resource_id(self._cloud.subscription, vm.group, NIC, f"{name}-{guid()[:8]}")
        sent = configuration["properties"]
        options: dict[str, str] = {}
        for each in sent["ipConfigurations"]:
            wanted = each["properties"].pop("publicIPAddressConfiguration", None)
            if wanted:
                address = self._bear_address(vm, wanted)
                options[address] = wanted["properties"].get("deleteOption", "Detach")
                each["properties"]["publicIPAddress"] = {"id": address}
        nic = self.models.nic(identity, vm.location, sent, dict(configuration.get("tags") or {}))
        nic.configuration = name
        nic.address_options = options
        self._cloud.world.add(nic)
        for each in nic.properties["ipConfigurations"]:
            self._bind(each)
        self.attach(nic, vm)
        return nic

    def _bear_address(self, vm: Vm, configuration: Json) -> str:
        name = f"{configuration['name']}-{guid()[:8]}"
        identity = resource_id(self._cloud.subscription, vm.group, PUBLIC_IP, name)
        tags = dict(configuration.get("tags") or {})
        body = {**configuration, "zones": vm.top.get("zones")}
        return self._cloud.world.add(self.models.address(identity, vm.location, body, tags)).id

    def _bind(self, configuration: Json) -> None:
        address = (configuration["properties"].get("publicIPAddress") or {}).get("id")
        found = self._cloud.world.get(address) if address else None
        if found is not None:
            found.properties["ipConfiguration"] = {"id": configuration["id"]}

    def _bear_disk(self, vm: Vm) -> None:
        sent = vm.sent["storageProfile"].get("osDisk") or {}
        attached = (sent.get("managedDisk") or {}).get("id")
        if sent.get("createOption") == "Attach" and attached:
            disk = self._cloud.world.get(attached)
            assert disk is not None
            vm.disk = {"name": disk.name, "id": disk.id}
            return
        name = sent.get("name") or f"{vm.name}_OsDisk_1_{guid().replace('-', '')}"
        vm.disk = {"name": name}
        if sent.get("diffDiskSettings"):
            return
        identity = resource_id(self._cloud.subscription, vm.group, DISK, name)
        kind = (sent.get("managedDisk") or {}).get("storageAccountType", "Standard_LRS")
        disk = Resource(
            id=identity,
            type=DISK,
            location=vm.location,
            # Copied now, and never again.
            tags=dict(vm.tags),
            properties={
                "osType": "Linux",
                "creationData": {"createOption": "FromImage"},
                "diskSizeGB": sent.get("diskSizeGB", 30),
                "diskState": "Attached",
            },
            extra={"sku": {"name": kind, "tier": kind.split("_")[0]}, "managedBy": vm.id},
        )
        self._cloud.world.add(disk, parent=vm.id)
        vm.disk["id"] = identity

    def _check_disk(self, vm: Vm) -> None:
        sent = vm.sent["storageProfile"].get("osDisk") or {}
        if not sent.get("name") or sent.get("createOption") == "Attach":
            return
        if self._cloud.world.find(self._cloud.subscription, vm.group, DISK, sent["name"]):
            raise refusal(
                409,
                "ConflictingUserInput",
                f"Disk {sent['name']} already exists in resource group {vm.group.upper()}. Only "
                "CreateOption.Attach is supported.",
                target="/",
            )

    def _check_configuration(self, vm: Vm, name: str) -> None:
        """The name of an interface of a failed create cannot be used again for a while."""
        held = self._reserved.get((vm.key, name.lower()))
        if held is not None and self.is_reserved(held):
            raise reserved(held)

    def _check_subnets(self, vm: Vm) -> None:
        for configuration in _configurations(vm.sent):
            for each in configuration["properties"].get("ipConfigurations") or []:
                identity = ((each.get("properties") or {}).get("subnet") or {}).get("id", "")
                subnet = self._cloud.subnets.get(identity.lower())
                if subnet is not None and subnet.room < 1:
                    raise refusal(
                        400,
                        "SubnetIsFull",
                        f"Subnet {identity} with address prefix 10.0.0.0/20 does not have enough "
                        "capacity for 1 IP addresses.",
                        details=[],
                    )


def _configurations(properties: Json) -> list[Any]:
    found: list[Any] = properties["networkProfile"].get("networkInterfaceConfigurations") or []
    return found


def _reference(identity: str, properties: Json) -> Json:
    chosen = {key: properties[key] for key in ("primary", "deleteOption") if key in properties}
    return {"id": identity, **({"properties": chosen} if chosen else {})}


def _given(sent: Json) -> Json:
    return {"properties": sent["properties"]} if sent.get("properties") else {}
