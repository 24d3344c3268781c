"""The routes of the truth: which recorded or sent call is which.

One table names every call that the double speaks, and every other call that stands in a recording.
No knowledge of bodies belongs here; schemas, recordings and the replay all ask this table.
"""

import re
from dataclasses import dataclass

_SUBSCRIPTION = r"/subscriptions/[^/]+"
_GROUP = _SUBSCRIPTION + r"/resourceGroups/[^/]+"
_COMPUTE = r"/providers/Microsoft\.Compute"
_NETWORK = r"/providers/Microsoft\.Network"
_VM = _GROUP + _COMPUTE + r"/virtualMachines/[^/]+"
_NIC = _NETWORK + r"/networkInterfaces"
_IP = _NETWORK + r"/publicIPAddresses"
_TENANT = r"/[^/]+"
_SCOPE = r"/.+"


@dataclass(frozen=True)
class Route:
    """One call: its verb, its path, and the name everything else here knows it by."""

    name: str
    method: str
    pattern: str

    def matches(self, method: str, path: str) -> bool:
        """Resource ids are compared without regard to case, as ARM does."""
        return (
            method.upper() == self.method
            and re.fullmatch(self.pattern, path.rstrip("/"), re.IGNORECASE) is not None
        )


ROUTES: tuple[Route, ...] = (
    Route("metadata.token", "GET", r"/metadata/identity/oauth2/token"),
    Route("token", "POST", _TENANT + r"/oauth2/v2\.0/token"),
    Route("openid-configuration", "GET", _TENANT + r"/v2\.0/\.well-known/openid-configuration"),
    Route("instance-discovery", "GET", r"/common/discovery/instance"),
    Route("vm.put", "PUT", _VM),
    Route("vm.get", "GET", _VM),
    Route("vm.patch", "PATCH", _VM),
    Route("vm.delete", "DELETE", _VM),
    Route("vm.instance-view", "GET", _VM + "/instanceView"),
    Route("vm.start", "POST", _VM + "/start"),
    Route("vm.deallocate", "POST", _VM + "/deallocate"),
    Route("vm.power-off", "POST", _VM + "/powerOff"),
    Route("vm.restart", "POST", _VM + "/restart"),
    Route("vm.simulate-eviction", "POST", _VM + "/simulateEviction"),
    Route("vm.boot-diagnostics", "POST", _VM + "/retrieveBootDiagnosticsData"),
    Route("vm.reimage", "POST", _VM + "/reimage"),
    Route("vm.list", "GET", _GROUP + _COMPUTE + "/virtualMachines"),
    Route("vm.list-all", "GET", _SUBSCRIPTION + _COMPUTE + "/virtualMachines"),
    Route(
        "vm.list-location",
        "GET",
        _SUBSCRIPTION + _COMPUTE + r"/locations/[^/]+/virtualMachines",
    ),
    Route("extension.put", "PUT", _VM + "/extensions/[^/]+"),
    Route("extension.get", "GET", _VM + "/extensions/[^/]+"),
    Route("extension.delete", "DELETE", _VM + "/extensions/[^/]+"),
    Route("extension.list", "GET", _VM + "/extensions"),
    Route("compute.operation", "GET", _SUBSCRIPTION + _COMPUTE + r"/locations/[^/]+/operations/.+"),
    Route("compute.usages", "GET", _SUBSCRIPTION + _COMPUTE + r"/locations/[^/]+/usages"),
    Route("skus", "GET", _SUBSCRIPTION + _COMPUTE + "/skus"),
    Route("nic.put", "PUT", _GROUP + _NIC + "/[^/]+"),
    Route("nic.get", "GET", _GROUP + _NIC + "/[^/]+"),
    Route("nic.patch", "PATCH", _GROUP + _NIC + "/[^/]+"),
    Route("nic.delete", "DELETE", _GROUP + _NIC + "/[^/]+"),
    Route("nic.list", "GET", _GROUP + _NIC),
    Route("nic.list-all", "GET", _SUBSCRIPTION + _NIC),
    Route("ip.put", "PUT", _GROUP + _IP + "/[^/]+"),
    Route("ip.get", "GET", _GROUP + _IP + "/[^/]+"),
    Route("ip.patch", "PATCH", _GROUP + _IP + "/[^/]+"),
    Route("ip.delete", "DELETE", _GROUP + _IP + "/[^/]+"),
    Route("ip.list", "GET", _GROUP + _IP),
    Route("ip.list-all", "GET", _SUBSCRIPTION + _IP),
    Route("network.operation", "GET", _SUBSCRIPTION + _NETWORK + r"/locations/[^/]+/operations/.+"),
    Route(
        "network.result",
        "GET",
        _SUBSCRIPTION + _NETWORK + r"/locations/[^/]+/operationResults/.+",
    ),
    Route("network.usages", "GET", _SUBSCRIPTION + _NETWORK + r"/locations/[^/]+/usages"),
    Route("graph.query", "POST", r"/providers/Microsoft\.ResourceGraph/resources"),
    # From here on no machine-readable description of the bodies is at hand.
    Route("tags.get", "GET", _SCOPE + r"/providers/Microsoft\.Resources/tags/default"),
    Route("tags.put", "PUT", _SCOPE + r"/providers/Microsoft\.Resources/tags/default"),
    Route("tags.patch", "PATCH", _SCOPE + r"/providers/Microsoft\.Resources/tags/default"),
    Route("tags.delete", "DELETE", _SCOPE + r"/providers/Microsoft\.Resources/tags/default"),
    Route("disk.get", "GET", _GROUP + _COMPUTE + "/disks/[^/]+"),
    Route("disk.delete", "DELETE", _GROUP + _COMPUTE + "/disks/[^/]+"),
    Route("disk.list", "GET", _GROUP + _COMPUTE + "/disks"),
    Route("disk.list-all", "GET", _SUBSCRIPTION + _COMPUTE + "/disks"),
    Route("image.get", "GET", _GROUP + _COMPUTE + "/images/[^/]+"),
    Route(
        "gallery-version.get",
        "GET",
        _GROUP + _COMPUTE + r"/galleries/[^/]+/images/[^/]+/versions/[^/]+",
    ),
    Route("gallery-image.get", "GET", _GROUP + _COMPUTE + r"/galleries/[^/]+/images/[^/]+"),
    Route(
        "platform-image.list",
        "GET",
        _SUBSCRIPTION + _COMPUTE + r"/locations/[^/]+/publishers/.+/versions",
    ),
    Route(
        "platform-image.get",
        "GET",
        _SUBSCRIPTION + _COMPUTE + r"/locations/[^/]+/publishers/.+/versions/[^/]+",
    ),
    Route("subnet.get", "GET", _GROUP + _NETWORK + r"/virtualNetworks/[^/]+/subnets/[^/]+"),
    Route("vnet.get", "GET", _GROUP + _NETWORK + "/virtualNetworks/[^/]+"),
    Route("group.get", "GET", _GROUP),
    Route("subscription.get", "GET", _SUBSCRIPTION),
    Route("provider.get", "GET", _SUBSCRIPTION + r"/providers/[^/]+"),
    Route("provider.register", "POST", _SUBSCRIPTION + r"/providers/[^/]+/register"),
    Route("resource.get", "GET", _GROUP + r"/providers/[^/]+/[^/]+/[^/]+"),
    Route("prices", "GET", r"/api/retail/prices"),
    Route("blob", "GET", r"/boot-diagnostics/[^/]+/[^/]+"),
)

UNSPOKEN = "unspoken"
"""The name of every call that the double does not claim to speak."""


def classify(method: str, path: str) -> str:
    """Name the route of a call, `UNSPOKEN` when the table has none."""
    for route in ROUTES:
        if route.matches(method, path):
            return route.name
    return UNSPOKEN


def provider_of(route: str) -> str:
    """Tell which resource provider answers a route: `compute`, `network`, or `other`."""
    family = route.partition(".")[0]
    if family in {"vm", "extension", "compute", "skus"}:
        return "compute"
    if family in {"nic", "ip", "network"}:
        return "network"
    return "other"
