"""Virtual machines as Compute answers them: model and instance view."""

import base64
from dataclasses import dataclass, field

from tests.support.arm.clock import stamp
from tests.support.arm.extension_model import Extension
from tests.support.arm.resources import Resource, guid
from tests.support.arm.wire import Json

RUNNING = "running"
STOPPED = "stopped"
DEALLOCATED = "deallocated"
_POWER = {
    RUNNING: "VM running",
    STOPPED: "VM stopped",
    DEALLOCATED: "VM deallocated",
    "starting": "VM starting",
}
_STATE = {
    "Succeeded": ("succeeded", "Provisioning succeeded"),
    "Failed": ("failed", "Provisioning failed"),
    "Creating": ("creating", "Creating"),
    "Updating": ("updating", "Updating"),
    "Deleting": ("deleting", "Deleting"),
}


@dataclass(eq=False)
class Vm(Resource):
    """One virtual machine; `sent` is what its PUTs gave, which its answers are made from."""

    sent: Json = field(default_factory=dict)
    top: Json = field(default_factory=dict)
    """What stands beside `properties` in the PUT: identity, plan, zones."""
    vm_id: str = field(default_factory=guid)
    power: str | None = None
    """None while it never ran."""
    shell: bool = False
    """Its create failed."""
    deleting: bool = False
    nics: list[Json] = field(default_factory=list)
    """References as the answer shows them."""
    disk: Json = field(default_factory=dict)
    """The OS disk: name, id and more, once there is one."""
    image: Json = field(default_factory=dict)
    agent: bool = True
    """Whether a guest agent answers."""
    generation: str = "V2"
    extensions: dict[str, Extension] = field(default_factory=dict)
    changed: float = 0.0

    @property
    def size(self) -> str:
        return str(self.sent["hardwareProfile"]["vmSize"])

    @property
    def spot(self) -> bool:
        return self.sent.get("priority") in {"Spot", "Low"}

    @property
    def zone(self) -> str:
        """`none` without one."""
        zones = self.top.get("zones") or ["none"]
        return str(zones[0])

    @property
    def os_profile(self) -> Json:
        found: Json = self.sent.get("osProfile") or {}
        return found

    @property
    def custom_data(self) -> str | None:
        return self.os_profile.get("customData")

    @property
    def custom_bytes(self) -> bytes:
        """What the guest finds as its customData."""
        return base64.b64decode(self.custom_data or "")

    def view(self, *, instance: bool = False, user_data: bool = False, tags: bool = True) -> Json:
        """The model, as GETs and lists answer it."""
        body: Json = {
            "name": self.name,
            "id": self.id,
            "type": "Microsoft.Compute/virtualMachines",
            "location": self.location,
        }
        if tags and self.extra.get("tagged"):
            body["tags"] = dict(self.tags)
        body |= {key: self.top[key] for key in ("zones", "plan") if self.top.get(key)}
        if self.top.get("identity"):
            body["identity"] = self._identity()
        body["properties"] = self._properties(instance=instance, user_data=user_data)
        if self.extensions:
            body["resources"] = [each.view() for each in self.extensions.values()]
        body["etag"] = f'"{self.etag}"'
        return body

    def instance_view(self) -> Json:
        view: Json = {}
        if self.power == RUNNING:
            view |= self._guest_view()
        view["disks"] = [
            {
                "name": self.disk.get("name", ""),
                "statuses": [_status("succeeded", "Provisioning succeeded", self.changed)],
            }
        ]
        diagnostics = (self.sent.get("diagnosticsProfile") or {}).get("bootDiagnostics") or {}
        if diagnostics.get("enabled"):
            view["bootDiagnostics"] = {}
        if self.extensions:
            view["extensions"] = [each.instance_view() for each in self.extensions.values()]
        view["hyperVGeneration"] = self.generation
        code, shown = _STATE[self.state]
        view["statuses"] = [_status(code, shown, self.changed)]
        if self.power is not None:
            power = {"code": f"PowerState/{self.power}", "level": "Info"}
            view["statuses"].append(power | {"displayStatus": _POWER[self.power]})
        return view

    def _guest_view(self) -> Json:
        if not self.agent:
            silent = {
                "code": "ProvisioningState/Unavailable",
                "level": "Warning",
                "displayStatus": "Not Ready",
                "message": "VM status blob is found but not yet populated.",
                "time": stamp(self.changed),
            }
            return {"vmAgent": {"vmAgentVersion": "Unknown", "statuses": [silent]}}
        ready = _status("succeeded", "Ready", self.changed) | {"message": "Guest Agent is running"}
        handlers = [
            {
                "type": each.handler,
                "typeHandlerVersion": f"{each.version}.0",
                "status": {
                    "code": "ProvisioningState/succeeded",
                    "level": "Info",
                    "displayStatus": "Ready",
                    "message": "Plugin enabled",
                },
            }
            for each in self.extensions.values()
            if each.statuses
        ]
        return {
            "computerName": self.os_profile.get("computerName", self.name),
            "osName": "ubuntu",
            "osVersion": "24.04",
            "vmAgent": {
                "vmAgentVersion": "2.11.1.12",
                "statuses": [ready],
                "extensionHandlers": handlers,
            },
        }

    def _properties(self, *, instance: bool, user_data: bool) -> Json:
        sent = self.sent
        body: Json = {
            "hardwareProfile": sent["hardwareProfile"],
            "provisioningState": self.state,
            "vmId": self.vm_id,
        }
        body |= _chosen(sent, "additionalCapabilities")
        body["storageProfile"] = self._storage()
        if self.os_profile:
            body["osProfile"] = self._os_profile()
        body |= _chosen(sent, "securityProfile")
        body["networkProfile"] = {"networkInterfaces": self.nics}
        body |= _chosen(
            sent,
            "diagnosticsProfile",
            "availabilitySet",
            "capacityReservation",
            "priority",
            "evictionPolicy",
            "billingProfile",
            "scheduledEventsProfile",
        )
        if user_data and "userData" in sent:
            body["userData"] = sent["userData"]
        if instance:
            body["instanceView"] = self.instance_view()
        body["timeCreated"] = stamp(self.created)
        return body

    def _storage(self) -> Json:
        sent = self.sent["storageProfile"]
        profile: Json = {}
        if "imageReference" in sent:
            profile["imageReference"] = {**sent["imageReference"], **self.image}
        profile["osDisk"] = self._os_disk(sent.get("osDisk") or {})
        profile["dataDisks"] = sent.get("dataDisks") or []
        if "diskControllerType" in sent:
            profile["diskControllerType"] = sent["diskControllerType"]
        return profile

    def _os_disk(self, sent: Json) -> Json:
        managed = dict(sent.get("managedDisk") or {})
        allocated = self.power != DEALLOCATED
        if allocated:
            managed.setdefault("storageAccountType", "Standard_LRS")
        else:
            managed.pop("storageAccountType", None)
        disk: Json = {"osType": "Linux"}
        name = sent.get("name") or (self.disk.get("name") if self.power else None)
        if name:
            disk["name"] = name
        disk["createOption"] = sent.get("createOption", "FromImage")
        disk["caching"] = sent.get("caching", "ReadWrite")
        disk |= _chosen(sent, "diffDiskSettings", "writeAcceleratorEnabled")
        if (self.power or self.shell) and "id" in self.disk:
            managed["id"] = self.disk["id"]
        disk["managedDisk"] = managed
        disk["deleteOption"] = sent.get("deleteOption", "Detach")
        if allocated:
            disk["diskSizeGB"] = sent.get("diskSizeGB", 30)
        return disk

    def _os_profile(self) -> Json:
        """Without customData and passwords: these are never echoed."""
        hidden = {"customData", "adminPassword"}
        profile = {key: value for key, value in self.os_profile.items() if key not in hidden}
        linux: Json = {
            "disablePasswordAuthentication": False,
            "provisionVMAgent": True,
            "patchSettings": {"patchMode": "ImageDefault", "assessmentMode": "ImageDefault"},
            "enableVMAgentPlatformUpdates": False,
        }
        profile["linuxConfiguration"] = linux | (self.os_profile.get("linuxConfiguration") or {})
        profile.setdefault("secrets", [])
        profile.setdefault("allowExtensionOperations", True)
        profile.setdefault("requireGuestProvisionSignal", True)
        return profile

    def _identity(self) -> Json:
        sent = self.top["identity"]
        users = {
            key: {"principalId": guid(), "clientId": guid()}
            for key in sent.get("userAssignedIdentities") or {}
        }
        body: Json = {"type": sent["type"]}
        if "SystemAssigned" in sent["type"]:
            body |= {"principalId": self.vm_id, "tenantId": self.vm_id}
        return body | ({"userAssignedIdentities": users} if users else {})


def _chosen(sent: Json, *keys: str) -> Json:
    return {key: sent[key] for key in keys if sent.get(key) is not None}


def _status(code: str, shown: str, at: float) -> Json:
    return {
        "code": f"ProvisioningState/{code}",
        "level": "Info" if code != "failed" else "Error",
        "displayStatus": shown,
        "time": stamp(at),
    }
