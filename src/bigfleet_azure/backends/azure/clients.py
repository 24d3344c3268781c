"""Every call to Azure Resource Manager that the backend makes, one method each.

What is here and nowhere else: paths, API versions, and which call has which name. How a call gets
there and back is `connection`'s.

Virtual machines, extensions and disks are called through the compute SDK's operations; lists, tags
and what belongs to other providers go through the same client's pipeline, so that the network SDK
is loaded only when a leftover has to be deleted.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from bigfleet_azure.backends.azure import answers
from bigfleet_azure.backends.azure.arm import ArmError, Failure
from bigfleet_azure.backends.azure.connection import Connection, Reply
from bigfleet_azure.backends.azure.options import AzureOptions
from bigfleet_azure.backends.azure.poller import Reading

if TYPE_CHECKING:
    from azure.core.rest import AsyncHttpResponse

Json = dict[str, Any]

NETWORK_API = "2026-03-01"
"""The default of azure-mgmt-network 33.1, for reads that do not load it."""

DISKS_API = "2026-03-02"
COMPUTE_API = "2026-04-01"
"""The defaults of azure-mgmt-compute 39 (azure-facts section 1.2)."""

RESOURCES_API = "2021-04-01"
"""Tags, groups and providers: the version whose tags operations are documented as stable."""


RESOURCE_GRAPH_API = "2022-10-01"
"""The default of azure-mgmt-resourcegraph 8."""

_GRAPH_PAGE, _GRAPH_PAGES = 1000, 20
"""Rows of a page, the most that Resource Graph gives; a size has one row in a region."""


class Clients(Connection):
    """The calls, by what they are about."""

    # Ids

    @property
    def group_path(self) -> str:
        """The ARM id of our resource group."""
        return group_path(self._options)

    def vm_id(self, name: str) -> str:
        """The ARM id of our group's VM of that name."""
        return f"{self.group_path}/providers/Microsoft.Compute/virtualMachines/{name}"

    # Virtual machines

    async def put_vm(self, name: str, body: Json) -> Reply:
        """Create a VM; refused when one of that name exists."""
        from azure.core import MatchConditions

        async def send() -> "AsyncHttpResponse":
            poller = await self._compute.virtual_machines.begin_create_or_update(
                self._options.resource_group,
                name,
                cast("Any", body),
                match_condition=MatchConditions.IfMissing,
                polling=False,
                cls=_raw,
            )
            return await _answered(poller)

        return await self._call("vm.put", name, send)

    async def get_vm(self, name: str, *, instance_view: bool = False) -> Json | None:
        """The VM, with its instance view when asked for; None when there is none."""

        async def send() -> "AsyncHttpResponse":
            return await _got(
                self._compute.virtual_machines.get(
                    self._options.resource_group,
                    name,
                    expand="instanceView" if instance_view else None,
                    cls=_raw,
                )
            )

        return await self._found("vm.get", name, send)

    async def delete_vm(self, name: str) -> Reply | None:
        """Delete a VM; None when there is none any more."""

        async def send() -> "AsyncHttpResponse":
            poller = await self._compute.virtual_machines.begin_delete(
                self._options.resource_group, name, polling=False, cls=_raw
            )
            return await _answered(poller)

        return await self._deleted("vm.delete", name, send)

    async def start_vm(self, name: str) -> Reply:
        """Start a VM that is stopped or deallocated."""

        async def send() -> "AsyncHttpResponse":
            poller = await self._compute.virtual_machines.begin_start(
                self._options.resource_group, name, polling=False, cls=_raw
            )
            return await _answered(poller)

        with self.measured("StartVM"):
            return await self._call("vm.start", name, send)

    async def list_vms(self) -> list[Json]:
        """All VMs of our group, with tags, without power states."""
        path = f"{self.group_path}/providers/Microsoft.Compute/virtualMachines"
        return [vm async for vm in self._pages("vm.list", path, COMPUTE_API)]

    async def vms_by_name(self) -> dict[str, Json]:
        """All VMs of our group by lower-case name."""
        return {str(vm.get("name")).lower(): vm for vm in await self.list_vms()}

    async def list_statuses(self) -> list[Json]:
        """The instance views of all VMs of the subscription, without tags and models."""
        path = (
            f"/subscriptions/{self._options.subscription_id}"
            "/providers/Microsoft.Compute/virtualMachines"
        )
        pages = self._pages("vm.list-all", path, COMPUTE_API, statusOnly="true")
        return [vm async for vm in pages]

    # Extensions and tags

    async def put_extension(self, vm: str, name: str, body: Json) -> Reply:
        """Make an extension of a VM be as `body` says, and run if that differs."""

        async def send() -> "AsyncHttpResponse":
            poller = await self._compute.virtual_machine_extensions.begin_create_or_update(
                self._options.resource_group,
                vm,
                name,
                cast("Any", body),
                polling=False,
                cls=_raw,
            )
            return await _answered(poller)

        return await self._call("extension.put", vm, send)

    async def get_extension(self, vm: str, name: str) -> Json | None:
        """An extension of a VM with its instance view; None when there is none."""

        async def send() -> "AsyncHttpResponse":
            return await _got(
                self._compute.virtual_machine_extensions.get(
                    self._options.resource_group, vm, name, expand="instanceView", cls=_raw
                )
            )

        return await self._found("extension.get", vm, send)

    async def list_extensions(self, vm: str) -> list[Json]:
        """All extensions of a VM."""
        path = f"{self.vm_id(vm)}/extensions"
        return [one async for one in self._pages("extension.list", path, COMPUTE_API)]

    async def merge_tags(self, resource: str, tags: Mapping[str, str]) -> Reply:
        """Add or change tags of a resource; others stay as they are."""
        return await self._patch_tags(resource, "Merge", tags)

    async def delete_tags(self, resource: str, tags: Mapping[str, str]) -> Reply:
        """Remove tags of a resource by key; others stay as they are."""
        return await self._patch_tags(resource, "Delete", tags)

    async def _patch_tags(self, resource: str, operation: str, tags: Mapping[str, str]) -> Reply:
        body = {"operation": operation, "properties": {"tags": dict(tags)}}
        path = f"{resource}/providers/Microsoft.Resources/tags/default"
        return await self._send("tags.patch", "PATCH", path, RESOURCES_API, body=body)

    # Parts

    async def list_nics(self) -> list[Json]:
        """All network interfaces of our group."""
        return await self._list_network("nic.list", "networkInterfaces")

    async def list_addresses(self) -> list[Json]:
        """All public IP addresses of our group."""
        return await self._list_network("ip.list", "publicIPAddresses")

    async def list_disks(self) -> list[Json]:
        """All managed disks of our group."""
        path = f"{self.group_path}/providers/Microsoft.Compute/disks"
        return [disk async for disk in self._pages("disk.list", path, DISKS_API)]

    async def _list_network(self, call: str, kind: str) -> list[Json]:
        path = f"{self.group_path}/providers/Microsoft.Network/{kind}"
        return [one async for one in self._pages(call, path, NETWORK_API)]

    async def get_part(self, resource: str) -> Json | None:
        """A network interface, public IP address or disk by its id; None when it is gone."""
        call, version = _part(resource)
        return await self.read(f"{call}.get", resource, version)

    async def delete_part(self, resource: str) -> Reply | None:
        """Delete a network interface, public IP address or disk; None when it is gone."""
        call, _ = _part(resource)
        group, name = group_and_name(resource)

        async def send() -> "AsyncHttpResponse":
            poller = await (await self._part_operations(call)).begin_delete(
                group, name, polling=False, cls=_raw
            )
            return await _answered(poller)

        return await self._deleted(f"{call}.delete", name, send)

    async def _part_operations(self, call: str) -> Any:
        if call == "disk":
            return self._compute.disks
        # Imported in a thread: it takes far longer than the loop may be held.
        sdk = await asyncio.to_thread(importlib.import_module, "azure.mgmt.network.aio")
        if self._network_client is None:
            self._network_client = sdk.NetworkManagementClient(**self._client_arguments())
        if call == "nic":
            return self._network_client.network_interfaces
        return self._network_client.public_ip_addresses

    # What is there to be had

    async def skus(self) -> list[Json]:
        """The sizes of our location, restricted ones too."""
        path = f"/subscriptions/{self._options.subscription_id}/providers/Microsoft.Compute/skus"
        where = f"location eq '{self._options.location}'"
        pages = self._pages("skus", path, "2021-07-01", **{"$filter": where})
        with self.measured("ResourceSkus"):
            return [sku async for sku in pages if sku.get("resourceType") == "virtualMachines"]

    async def compute_usages(self) -> list[Json]:
        """Quota and use of cores and machines."""
        return await self._usages("compute.usages", "Microsoft.Compute", COMPUTE_API)

    async def network_usages(self) -> list[Json]:
        """Quota and use of interfaces and addresses."""
        return await self._usages("network.usages", "Microsoft.Network", NETWORK_API)

    async def _usages(self, call: str, namespace: str, version: str) -> list[Json]:
        path = (
            f"/subscriptions/{self._options.subscription_id}/providers/{namespace}"
            f"/locations/{self._options.location}/usages"
        )
        return [row async for row in self._pages(call, path, version)]

    async def spot_eviction_rates(self, sizes: Sequence[str]) -> list[Json]:
        """Rows of Resource Graph about how often Spot machines of these sizes are evicted here.

        Asked of the whole tenant: narrower scopes were seen to hold no such rows (azure-facts
        section 2.6).
        """
        names = ", ".join(f"'{size.lower()}'" for size in sizes)
        query = (
            "SpotResources"
            " | where type =~ 'microsoft.compute/skuspotevictionrate/location'"
            f" | where location =~ '{self._options.location}'"
            f" | where sku.name in~ ({names})"
        )
        rows: list[Json] = []
        options: Json = {"resultFormat": "objectArray", "$top": _GRAPH_PAGE}
        for _ in range(_GRAPH_PAGES):
            reply = await self._send(
                "graph.query",
                "POST",
                "/providers/Microsoft.ResourceGraph/resources",
                RESOURCE_GRAPH_API,
                body={"query": query, "options": options},
            )
            data = reply.body.get("data")
            rows += [row for row in data if isinstance(row, dict)] if isinstance(data, list) else []
            following = reply.body.get("$skipToken")
            if not following:
                break
            options = {**options, "$skipToken": following}
        return rows

    async def provider(self, namespace: str) -> Json | None:
        """A resource provider of our subscription, with its registration state."""
        path = f"/subscriptions/{self._options.subscription_id}/providers/{namespace}"
        return await self.read("provider.get", path, RESOURCES_API)

    async def group(self) -> Json | None:
        """Our resource group."""
        return await self.read("group.get", self.group_path, RESOURCES_API)

    async def platform_versions(self, image: str) -> list[Json]:
        """Newest versions of a marketplace image, given as publisher:offer:sku:version."""
        publisher, offer, sku, _ = image.split(":")
        path = self._platform_path(publisher, offer, sku)
        reply = await self._send(
            "platform-image.list",
            "GET",
            path,
            COMPUTE_API,
            query={"$top": "1", "$orderby": "name desc"},
        )
        return list(reply.body.get("value", []))

    async def platform_image(self, image: str, version: str) -> Json | None:
        """One version of a marketplace image."""
        publisher, offer, sku, _ = image.split(":")
        path = f"{self._platform_path(publisher, offer, sku)}/{version}"
        return await self.read("platform-image.get", path, COMPUTE_API)

    def _platform_path(self, publisher: str, offer: str, sku: str) -> str:
        return (
            f"/subscriptions/{self._options.subscription_id}/providers/Microsoft.Compute"
            f"/locations/{self._options.location}/publishers/{publisher}"
            f"/artifacttypes/vmimage/offers/{offer}/skus/{sku}/versions"
        )

    # Operations under way

    async def poll(self, vm: str, url: str) -> Reading:
        """How an accepted operation is doing."""
        if urlsplit(url).netloc.lower() != urlsplit(self.endpoint).netloc.lower():
            raise ArmError(
                Failure(
                    call="compute.operation",
                    status=HTTPStatus.BAD_REQUEST,
                    code="ForeignOperationUrl",
                    message="the operation's address is not on the ARM endpoint and is not asked",
                )
            )
        call = "network.operation" if "/microsoft.network/" in url.lower() else "compute.operation"

        async def send() -> "AsyncHttpResponse":
            return await self._raw_request("GET", url, {}, None)

        reply, headers = await self._answer(call, url, send)
        state = str(reply.body.get("status") or "").lower()
        if state in ("failed", "canceled", "cancelled"):
            failure = answers.operation_failed(call, reply.body, headers, self._clock.now())
            self.count(failure)
            return Reading(done=True, failure=failure, retry_after=None, body=reply.body)
        if not state and _tells_state(url):
            raise self._failed(answers.no_answer(call, "UnreadableAnswer", "no state in it"))
        # A `Location` answers 202 without a state until it is over.
        done = state == "succeeded" or (not state and reply.status != 202)
        return Reading(done=done, failure=None, retry_after=reply.retry_after, body=reply.body)


def group_path(options: AzureOptions) -> str:
    """The ARM id of the operator's resource group."""
    return f"/subscriptions/{options.subscription_id}/resourceGroups/{options.resource_group}"


def group_and_name(resource: str) -> tuple[str, str]:
    """Resource group and last name of an ARM id."""
    parts = resource.split("/")
    return parts[4], parts[-1]


def _tells_state(url: str) -> bool:
    """Whether an address is an `Azure-AsyncOperation`, as recorded, and not a `Location`."""
    return "/operations/" in urlsplit(url).path.lower() and "monitor=true" not in url.lower()


def _part(resource: str) -> tuple[str, str]:
    """The calls' prefix and the API version for a part's id."""
    kind = resource.lower()
    if "/microsoft.network/networkinterfaces/" in kind:
        return "nic", NETWORK_API
    if "/microsoft.network/publicipaddresses/" in kind:
        return "ip", NETWORK_API
    if "/microsoft.compute/disks/" in kind:
        return "disk", DISKS_API
    raise ValueError(f"{resource} is no part of a VM")


def _raw(response: Any, _deserialized: object, _headers: object) -> Any:
    """The SDK's hook for the raw answer."""
    return response.http_response


async def _got(reading: Awaitable[Any]) -> "AsyncHttpResponse":
    response: AsyncHttpResponse = await reading
    return response


async def _answered(poller: Any) -> "AsyncHttpResponse":
    """The first answer of a long-running call whose polling is ours."""
    response: AsyncHttpResponse = await poller.result()
    return response
