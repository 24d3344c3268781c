"""The table of calls: names, paths, what each is charged to, and the action that it needs.

Names are those of `truth/routes.py`. Paths are compared without regard to case.
"""

import re
from dataclasses import dataclass
from functools import cached_property

_SUB = "/subscriptions/{subscriptionId}"
_GROUP = _SUB + "/resourceGroups/{resourceGroupName}"
_COMPUTE = "/providers/Microsoft.Compute"
_NETWORK = "/providers/Microsoft.Network"
_LOCATION = "/locations/{location}"
_VM = _GROUP + _COMPUTE + "/virtualMachines/{vmName}"
_EXTENSION = _VM + "/extensions/{vmExtensionName}"
_NIC = _NETWORK + "/networkInterfaces"
_IP = _NETWORK + "/publicIPAddresses"
_TAGS = "/{scope}/providers/Microsoft.Resources/tags/default"
_PUBLISHED = (
    _SUB
    + _COMPUTE
    + _LOCATION
    + "/publishers/{publisherName}/artifacttypes/vmimage/offers/{offer}/skus/{skus}/versions"
)


@dataclass(frozen=True)
class Route:
    """One call."""

    name: str
    method: str
    template: str
    action: str | None = None
    policy: str | None = None
    """The bucket of Compute that it is charged to."""
    bucket: str | None = None
    """What its calls are counted as; ARM's own buckets are not charged, then."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        parts = re.split(r"\{(\w+)\}", self.template)
        text = "".join(
            re.escape(part)
            if index % 2 == 0
            else f"(?P<{part}>{'.+' if part == 'scope' else '[^/]+'})"
            for index, part in enumerate(parts)
        )
        return re.compile(text, re.IGNORECASE)

    @property
    def network(self) -> bool:
        return _NETWORK in self.template


def _compute(rest: str) -> str:
    return f"Microsoft.Compute/{rest}"


def _net(rest: str) -> str:
    return f"Microsoft.Network/{rest}"


def _post(name: str, verb: str, policy: str = "UpdateVM") -> Route:
    return Route(name, "POST", f"{_VM}/{verb}", _compute(f"virtualMachines/{verb}/action"), policy)


def _seeded(name: str, template: str, action: str) -> Route:
    return Route(name, "GET", _GROUP + template, action)


_VM_READ = _compute("virtualMachines/read")
_EXT = "virtualMachines/extensions"
_GALLERY = _COMPUTE + "/galleries/{galleryName}/images/{galleryImageName}"

ROUTES: tuple[Route, ...] = (
    Route("vm.put", "PUT", _VM, _compute("virtualMachines/write"), "PutVM"),
    Route("vm.get", "GET", _VM, _VM_READ, "LowCostGet"),
    Route("vm.patch", "PATCH", _VM, _compute("virtualMachines/write"), "UpdateVM"),
    Route("vm.delete", "DELETE", _VM, _compute("virtualMachines/delete"), "DeleteVM"),
    Route(
        "vm.instance-view",
        "GET",
        _VM + "/instanceView",
        _compute("virtualMachines/instanceView/read"),
        "LowCostGet",
    ),
    _post("vm.start", "start"),
    _post("vm.restart", "restart"),
    _post("vm.power-off", "powerOff"),
    _post("vm.reimage", "reimage"),
    _post("vm.deallocate", "deallocate", "DeleteVM"),
    _post("vm.simulate-eviction", "simulateEviction", "DeleteVM"),
    _post("vm.boot-diagnostics", "retrieveBootDiagnosticsData", "LowCostGet"),
    Route("vm.list", "GET", _GROUP + _COMPUTE + "/virtualMachines", _VM_READ, "HighCostGet"),
    Route("vm.list-all", "GET", _SUB + _COMPUTE + "/virtualMachines", _VM_READ, "HighCostGet"),
    Route(
        "vm.list-location",
        "GET",
        _SUB + _COMPUTE + _LOCATION + "/virtualMachines",
        _VM_READ,
        "HighCostGet",
    ),
    Route("extension.list", "GET", _VM + "/extensions", _compute(f"{_EXT}/read"), "LowCostGet"),
    Route("extension.put", "PUT", _EXTENSION, _compute(f"{_EXT}/write"), "UpdateVM"),
    Route("extension.get", "GET", _EXTENSION, _compute(f"{_EXT}/read"), "LowCostGet"),
    Route("extension.delete", "DELETE", _EXTENSION, _compute(f"{_EXT}/delete"), "UpdateVM"),
    Route(
        "compute.operation",
        "GET",
        _SUB + _COMPUTE + _LOCATION + "/operations/{operationId}",
        _compute("locations/operations/read"),
        "GetOperation",
    ),
    Route(
        "compute.usages",
        "GET",
        _SUB + _COMPUTE + _LOCATION + "/usages",
        _compute("locations/usages/read"),
        "GetSubscriptionInfo",
    ),
    Route("skus", "GET", _SUB + _COMPUTE + "/skus", _compute("skus/read")),
    Route("disk.list", "GET", _GROUP + _COMPUTE + "/disks", _compute("disks/read")),
    Route("disk.list-all", "GET", _SUB + _COMPUTE + "/disks", _compute("disks/read")),
    Route("disk.get", "GET", _GROUP + _COMPUTE + "/disks/{diskName}", _compute("disks/read")),
    Route(
        "disk.delete", "DELETE", _GROUP + _COMPUTE + "/disks/{diskName}", _compute("disks/delete")
    ),
    _seeded("image.get", _COMPUTE + "/images/{imageName}", _compute("images/read")),
    _seeded(
        "gallery-version.get",
        _GALLERY + "/versions/{galleryImageVersionName}",
        _compute("galleries/images/versions/read"),
    ),
    _seeded("gallery-image.get", _GALLERY, _compute("galleries/images/read")),
    Route(
        "platform-image.list",
        "GET",
        _PUBLISHED,
        _compute("locations/publishers/artifacttypes/offers/skus/versions/read"),
    ),
    Route(
        "platform-image.get",
        "GET",
        _PUBLISHED + "/{version}",
        _compute("locations/publishers/artifacttypes/offers/skus/versions/read"),
    ),
    Route("nic.list", "GET", _GROUP + _NIC, _net("networkInterfaces/read")),
    Route("nic.list-all", "GET", _SUB + _NIC, _net("networkInterfaces/read")),
    Route(
        "nic.put",
        "PUT",
        _GROUP + _NIC + "/{networkInterfaceName}",
        _net("networkInterfaces/write"),
    ),
    Route(
        "nic.get", "GET", _GROUP + _NIC + "/{networkInterfaceName}", _net("networkInterfaces/read")
    ),
    Route(
        "nic.patch",
        "PATCH",
        _GROUP + _NIC + "/{networkInterfaceName}",
        _net("networkInterfaces/write"),
    ),
    Route(
        "nic.delete",
        "DELETE",
        _GROUP + _NIC + "/{networkInterfaceName}",
        _net("networkInterfaces/delete"),
    ),
    Route("ip.list", "GET", _GROUP + _IP, _net("publicIPAddresses/read")),
    Route("ip.list-all", "GET", _SUB + _IP, _net("publicIPAddresses/read")),
    Route(
        "ip.put", "PUT", _GROUP + _IP + "/{publicIpAddressName}", _net("publicIPAddresses/write")
    ),
    Route("ip.get", "GET", _GROUP + _IP + "/{publicIpAddressName}", _net("publicIPAddresses/read")),
    Route(
        "ip.patch",
        "PATCH",
        _GROUP + _IP + "/{publicIpAddressName}",
        _net("publicIPAddresses/write"),
    ),
    Route(
        "ip.delete",
        "DELETE",
        _GROUP + _IP + "/{publicIpAddressName}",
        _net("publicIPAddresses/delete"),
    ),
    Route(
        "network.operation",
        "GET",
        _SUB + _NETWORK + _LOCATION + "/operations/{operationId}",
        _net("locations/operations/read"),
    ),
    Route(
        "network.result",
        "GET",
        _SUB + _NETWORK + _LOCATION + "/operationResults/{operationId}",
        _net("locations/operationResults/read"),
    ),
    Route(
        "network.usages",
        "GET",
        _SUB + _NETWORK + _LOCATION + "/usages",
        _net("locations/usages/read"),
    ),
    _seeded(
        "subnet.get",
        _NETWORK + "/virtualNetworks/{virtualNetworkName}/subnets/{subnetName}",
        _net("virtualNetworks/subnets/read"),
    ),
    _seeded(
        "vnet.get",
        _NETWORK + "/virtualNetworks/{virtualNetworkName}",
        _net("virtualNetworks/read"),
    ),
    Route("tags.get", "GET", _TAGS, "Microsoft.Resources/tags/read"),
    Route("tags.put", "PUT", _TAGS, "Microsoft.Resources/tags/write"),
    Route("tags.patch", "PATCH", _TAGS, "Microsoft.Resources/tags/write"),
    Route("tags.delete", "DELETE", _TAGS, "Microsoft.Resources/tags/delete"),
    Route("group.get", "GET", _GROUP, "Microsoft.Resources/subscriptions/resourceGroups/read"),
    Route("subscription.get", "GET", _SUB, "Microsoft.Resources/subscriptions/read"),
    Route(
        "provider.get",
        "GET",
        _SUB + "/providers/{namespace}",
        "Microsoft.Resources/subscriptions/providers/read",
    ),
    Route(
        "provider.register",
        "POST",
        _SUB + "/providers/{namespace}/register",
        "Microsoft.Resources/subscriptions/providers/register/action",
    ),
    Route(
        "resource.get",
        "GET",
        _GROUP + "/providers/{namespace}/{resourceType}/{resourceName}",
        "Microsoft.Resources/subscriptions/resources/read",
    ),
    Route(
        "graph.query",
        "POST",
        "/providers/Microsoft.ResourceGraph/resources",
        "Microsoft.ResourceGraph/resources/read",
        bucket="ResourceGraph",
    ),
    # The price list, the token service and storage, which have no place in ARM.
    Route("prices", "GET", "/api/retail/prices", bucket="RetailPrices"),
    Route("token", "POST", "/{tenant}/oauth2/v2.0/token"),
    Route("openid-configuration", "GET", "/{tenant}/v2.0/.well-known/openid-configuration"),
    Route("instance-discovery", "GET", "/common/discovery/instance"),
    Route("metadata.token", "GET", "/metadata/identity/oauth2/token"),
    Route("blob", "GET", "/boot-diagnostics/{vmId}/{blob}"),
)
OUTSIDE_ARM = frozenset(
    {"prices", "token", "openid-configuration", "instance-discovery", "metadata.token", "blob"}
)


def find(method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """The route of a call, with what its path says."""
    bare = path.rstrip("/") or "/"
    for route in ROUTES:
        if route.method == method:
            found = route.pattern.fullmatch(bare)
            if found is not None:
                return route, found.groupdict()
    return None


def known_path(path: str) -> bool:
    """Whether any method knows the path."""
    bare = path.rstrip("/")
    return any(route.pattern.fullmatch(bare) for route in ROUTES)
