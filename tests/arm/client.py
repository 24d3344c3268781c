"""A plain HTTP client for the double, and the bodies that tests send."""

import base64
import ssl
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.support.arm.cloud import GROUP
from tests.support.arm.double import ArmDouble
from tests.support.arm.identity import CLIENT
from tests.support.arm.resources import resource_id

COMPUTE = "2026-04-01"
NETWORK = "2026-03-01"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFfake test"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Any
    body: Any

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])

    @property
    def message(self) -> str:
        return str(self.body["error"]["message"])


class Client:
    """Speaks to the double without the SDK."""

    def __init__(self, arm: ArmDouble, session: aiohttp.ClientSession) -> None:
        self.arm = arm
        self.session = session
        self.token = arm.identity.issue(CLIENT)

    async def send(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        version: str | None = COMPUTE,
        token: str | None = None,
        **more: Any,
    ) -> Reply:
        query = dict(more.pop("query", {}))
        if version is not None and "api-version" not in path:
            query["api-version"] = version
        headers = {"Authorization": f"Bearer {token or self.token}"} | more.pop("headers", {})
        url = path if path.startswith("https:") else self.arm.endpoint + path
        async with self.session.request(
            method, url, json=json, params=query, headers=headers, **more
        ) as answer:
            text = await answer.text()
            body = await answer.json(content_type=None) if text else None
            return Reply(answer.status, answer.headers, body)

    async def get(self, path: str, **more: Any) -> Reply:
        return await self.send("GET", path, **more)

    async def put_vm(self, name: str = "m-1", body: Any = None, **more: Any) -> Reply:
        body = body or vm_body(self.arm, name)
        return await self.send("PUT", self.vm(name), body, **more)

    async def created(self, name: str = "m-1", body: Any = None) -> Reply:
        """Create a VM and wait until it runs; the answer of its GET."""
        answer = await self.put_vm(name, body)
        assert answer.status == 201, answer
        ended = await self.ended(answer)
        assert ended["status"] == "Succeeded", ended
        return await self.get(self.vm(name))

    async def ended(self, accepted: Reply) -> Any:
        """The operation's last body."""
        url = accepted.headers["Azure-AsyncOperation"]
        while True:
            answer = await self.get(url)
            assert answer.status == 200, answer
            if answer.body["status"] != "InProgress":
                return answer.body
            await self.arm.clock.sleep(5)

    async def deleted(self, name: str = "m-1") -> None:
        answer = await self.send("DELETE", self.vm(name))
        assert answer.status == 202, answer
        assert (await self.ended(answer))["status"] == "Succeeded"

    def vm(self, name: str = "m-1", rest: str = "") -> str:
        return self.id("Microsoft.Compute/virtualMachines", name) + rest

    def id(self, kind: str, *names: str, group: str = GROUP) -> str:
        return resource_id(self.arm.cloud.subscription, group, kind, *names)

    @property
    def subscription(self) -> str:
        return f"/subscriptions/{self.arm.cloud.subscription}"

    @property
    def group(self) -> str:
        return f"{self.subscription}/resourceGroups/{GROUP}"


def connector(arm: ArmDouble) -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=arm.ca_file))


def vm_body(arm: ArmDouble, name: str = "m-1", **properties: Any) -> Any:
    """A VM with everything inline; `attempt`, `size`, `zone`, `tags` and `data` are our own."""
    attempt = properties.pop("attempt", "a1")
    size = properties.pop("size", "Standard_D4s_v5")
    zone = properties.pop("zone", None)
    tags = properties.pop("tags", {"bigfleet-machine-id": name, "bigfleet-owner": "us"})
    data = properties.pop("data", None)
    public = properties.pop("public", False)
    inner: Any = {"primary": True, "subnet": {"id": arm.cloud.subnet_id}}
    if public:
        inner["publicIPAddressConfiguration"] = {
            "name": f"{name}-ip-{attempt}",
            "sku": {"name": "Standard", "tier": "Regional"},
            "properties": {"deleteOption": "Delete", "publicIPAllocationMethod": "Static"},
        }
    nic = {
        "name": f"{name}-nic-{attempt}",
        "tags": {"part-of": name},
        "properties": {
            "primary": True,
            "deleteOption": "Delete",
            "ipConfigurations": [{"name": "main", "properties": inner}],
        },
    }
    profile: Any = {
        "computerName": name,
        "adminUsername": "fleet",
        "linuxConfiguration": {
            "disablePasswordAuthentication": True,
            "ssh": {"publicKeys": [{"path": "/home/fleet/.ssh/authorized_keys", "keyData": KEY}]},
        },
    }
    if data is not None:
        profile["customData"] = encoded(data)
    body: Any = {
        "location": arm.cloud.location,
        "tags": tags,
        "properties": {
            "hardwareProfile": {"vmSize": size},
            "storageProfile": {
                "imageReference": {
                    "publisher": "Canonical",
                    "offer": "ubuntu-24_04-lts",
                    "sku": "server",
                    "version": "latest",
                },
                "osDisk": {
                    "name": f"{name}-os-{attempt}",
                    "createOption": "FromImage",
                    "deleteOption": "Delete",
                    "managedDisk": {"storageAccountType": "Premium_LRS"},
                },
            },
            "osProfile": profile,
            "networkProfile": {
                "networkApiVersion": "2022-11-01",
                "networkInterfaceConfigurations": [nic],
            },
            **properties,
        },
    }
    if zone is not None:
        body["zones"] = [zone]
    return body


def spot(policy: str = "Delete") -> Any:
    return {"priority": "Spot", "evictionPolicy": policy, "billingProfile": {"maxPrice": -1}}


def script_body(
    script: str = "echo hello", *, stamp: int = 1, location: str = "eastus", **settings: Any
) -> Any:
    return {
        "location": location,
        "properties": {
            "publisher": "Microsoft.Azure.Extensions",
            "type": "CustomScript",
            "typeHandlerVersion": "2.1",
            "autoUpgradeMinorVersion": True,
            "settings": {"timestamp": stamp, **settings},
            "protectedSettings": {"script": encoded(script)},
        },
    }


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
