"""Refusals of Azure for the tests of the table: recorded and quoted ones, and some made up.

`EXAMPLES` holds one for each line of the table at least. What each is to mean is said beside it,
so that the table cannot prove itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bigfleet_azure.backends.azure import answers
from bigfleet_azure.backends.azure.arm import Failure
from bigfleet_azure.backends.azure.verdict import Scope
from bigfleet_azure.domain.errors import FailureKind
from tests.azure.things import recording

NOW = 1_750_000_000.0

HOUR = 3600.0

CAPACITY, QUOTA = FailureKind.OUT_OF_CAPACITY, FailureKind.QUOTA
DENIED, INVALID, CONFLICT = FailureKind.DENIED, FailureKind.INVALID, FailureKind.CONFLICT
TRANSIENT, THROTTLED = FailureKind.TRANSIENT, FailureKind.THROTTLED
GONE, UNKNOWN = FailureKind.GONE, FailureKind.UNKNOWN


@dataclass(frozen=True, kw_only=True)
class Example:
    """A refusal, and what it is to mean.

    Attributes:
        flags: the fields of the verdict that are to be True.
        wait: `retry_after` of the error, in seconds.
    """

    name: str
    failure: Failure
    kind: FailureKind
    code: str
    scope: Scope = Scope.NONE
    seconds: float = 0.0
    spot_seconds: float | None = None
    wait: float | None = None
    flags: frozenset[str] = field(default_factory=frozenset)

    def __str__(self) -> str:
        return self.name


def body(code: str, message: str = "Words of Azure.", **more: Any) -> dict[str, Any]:
    """An error as ARM writes it."""
    return {"error": {"code": code, "message": message, **more}}


def put(status: int, code: str, message: str = "Words of Azure.", **more: Any) -> Failure:
    """A refused VM PUT."""
    return refused("vm.put", status, body(code, message, **more))


def refused(
    call: str, status: int, document: object, headers: Mapping[str, str] | None = None
) -> Failure:
    """A refused call."""
    return answers.refused(call, status, headers or {}, document, NOW)


def later(code: str, message: str = "Words of Azure.", **more: Any) -> Failure:
    """An accepted operation that failed."""
    document = {"status": "Failed", **body(code, message, **more)}
    return answers.operation_failed("compute.operation", document, {}, NOW)


def quoted(number: int, *, more: bool = False, call: str = "vm.put") -> Failure:
    """An error that somebody quoted, from the recorded ones."""
    entry = recording("quoted-errors-more.json" if more else "quoted-errors.json")["errors"][number]
    if "lro_status" in entry:
        document = entry.get("operation_body") or {"status": "Failed", "error": entry["error"]}
        return answers.operation_failed("compute.operation", document, {}, NOW)
    return refused(call, entry["status"], entry["body"], entry.get("headers"))


def recorded(file: str, number: int, call: str) -> Failure:
    """An error of recorded traffic; one with status 200 is an operation's."""
    answer = recording(f"{file}.json")["exchanges"][number]["response"]
    if answer["status"] == 200:
        return answers.operation_failed(call, answer["body"], answer["headers"], NOW)
    return refused(call, answer["status"], answer["body"], answer["headers"])


def _on(
    name: str,
    failure: Failure,
    kind: FailureKind,
    code: str,
    *flags: str,
    scope: Scope = Scope.NONE,
    seconds: float = 0.0,
    spot_seconds: float | None = None,
    wait: float | None = None,
) -> Example:
    return Example(
        name=name,
        failure=failure,
        kind=kind,
        code=code,
        scope=scope,
        seconds=seconds,
        spot_seconds=spot_seconds,
        wait=wait,
        flags=frozenset(flags),
    )


_FAMILY = (
    "Operation could not be completed as it results in exceeding approved {} quota. Additional "
    "details - Deployment Model: Resource Manager, Location: eastus, Current Limit: {}, Current "
    "Usage: {}, Additional Required: 8."
)
_MARKED = (
    "Operation 'PutExtension' is not allowed on VM 'm' since the VM is marked for deletion. You "
    "can only retry the Delete operation (or wait for an ongoing one to complete)."
)
_MORE = "network-429-retryable-more"

_THROTTLING = [
    _on(
        "429 of a dependency",
        recorded("network-429-retryable", 0, "nic.put"),
        TRANSIENT,
        "RetryableError",
    ),
    _on(
        "429 of a dependency with its wait",
        recorded("network-429-retryable", 1, "nic.put"),
        TRANSIENT,
        "RetryableError",
        wait=12,
    ),
    _on("429 of a NIC", recorded(_MORE, 0, "nic.put"), TRANSIENT, "RetryableError"),
    _on("429 with a quota's code", quoted(10), THROTTLED, "OperationNotAllowed", wait=1200),
    _on(
        "429 with a quota's code and no header",
        quoted(8, more=True),
        THROTTLED,
        "OperationNotAllowed",
        wait=60,
    ),
    _on("429 of ARM", quoted(5, more=True), THROTTLED, "SubscriptionRequestsThrottled", wait=60),
    _on("429 of a resource", quoted(6, more=True), THROTTLED, "ResourceRequestsThrottled", wait=60),
    _on("429 in few words", quoted(7, more=True), THROTTLED, "TooManyRequests", wait=60),
    _on("429 without a body", refused("vm.put", 429, b""), THROTTLED, "Http429", wait=60),
    _on(
        "429 over quota words",
        put(429, "OperationNotAllowed", _FAMILY.format("A Cores", 1, 1)),
        THROTTLED,
        "OperationNotAllowed",
        wait=60,
    ),
    _on(
        "throttling inside an operation",
        later("TooManyRequests"),
        THROTTLED,
        "TooManyRequests",
        wait=60,
    ),
    _on(
        "throttling in an allocation's details",
        later("AllocationFailed", details=[{"code": "SubscriptionRequestsThrottled"}]),
        THROTTLED,
        "SubscriptionRequestsThrottled",
        wait=60,
    ),
    _on(
        "throttling by words inside an operation",
        later(
            "OperationNotAllowed",
            "The server rejected the request because too many requests "
            "have been received for this subscription.",
        ),
        THROTTLED,
        "OperationNotAllowed",
        wait=60,
    ),
]

_EXISTENCE = [
    _on(
        "PUT with other fields",
        put(409, "PropertyChangeNotAllowed", target="customData"),
        CONFLICT,
        "PropertyChangeNotAllowed",
        "exists",
    ),
    _on(
        "If-None-Match as 412",
        put(412, "PreconditionFailed"),
        CONFLICT,
        "PreconditionFailed",
        "exists",
    ),
    _on(
        "If-None-Match as 409",
        put(409, "Conflict", "The resource 'm' already exists."),
        CONFLICT,
        "Conflict",
        "exists",
    ),
    _on(
        "a disk of that name",
        put(
            409,
            "ConflictingUserInput",
            "Disk m_OSDisk already exists in resource group RG. Only "
            "CreateOption.Attach is supported.",
            target="/",
        ),
        TRANSIENT,
        "ConflictingUserInput",
        "names_taken",
    ),
    _on(
        "an etag of tags",
        refused("tags.patch", 412, body("PreconditionFailed")),
        TRANSIENT,
        "PreconditionFailed",
    ),
    _on(
        "an etag inside an operation",
        later("PreconditionFailed"),
        TRANSIENT,
        "PreconditionFailed",
    ),
    _on(
        "no such subscription, asked for itself",
        refused("subscription.get", 404, body("SubscriptionNotFound")),
        GONE,
        "SubscriptionNotFound",
        "gone",
    ),
    _on(
        "no such subscription",
        recorded("errors-404-more", 1, "vm.get"),
        DENIED,
        "SubscriptionNotFound",
    ),
    _on("no such VM", recorded("errors-404", 0, "vm.get"), GONE, "ResourceNotFound", "gone"),
    _on(
        "no such VM to delete",
        recorded("errors-404", 0, "vm.delete"),
        GONE,
        "ResourceNotFound",
        "gone",
    ),
    _on(
        "no such extension",
        recorded("errors-404-more", 0, "extension.get"),
        GONE,
        "ResourceNotFound",
        "gone",
    ),
    _on(
        "no such group around a VM",
        recorded("errors-404", 1, "vm.delete"),
        GONE,
        "ResourceGroupNotFound",
        "gone",
    ),
    _on(
        "no such image, asked for itself",
        refused("platform-image.get", 404, body("NotFound", "Artifact: VMImage was not found.")),
        GONE,
        "NotFound",
        "gone",
    ),
    _on(
        "an extension without its VM",
        recorded("errors-404", 2, "extension.put"),
        GONE,
        "ParentResourceNotFound",
    ),
    _on("tags of no VM", recorded("errors-404", 0, "tags.patch"), GONE, "ResourceNotFound"),
    _on(
        "an operation that is forgotten",
        recorded("vm-create-update-delete", 11, "compute.operation"),
        TRANSIENT,
        "NotFound",
    ),
    _on(
        "no such group to create in",
        recorded("errors-404", 1, "vm.put"),
        INVALID,
        "ResourceGroupNotFound",
    ),
    _on(
        "no such image",
        put(404, "PlatformImageNotFound", target="imageReference"),
        INVALID,
        "PlatformImageNotFound",
    ),
    _on(
        "no such managed image", put(404, "NotFound", target="imageReference"), INVALID, "NotFound"
    ),
    _on(
        "no such subnet",
        recorded("errors-400-invalidresourcereference", 0, "vm.put"),
        INVALID,
        "InvalidResourceReference",
    ),
    _on(
        "no such address",
        recorded("errors-400-invalidresourcereference", 1, "vm.put"),
        INVALID,
        "InvalidResourceReference",
    ),
    _on(
        "a group that is going, on delete",
        refused("vm.delete", 409, body("ResourceGroupBeingDeleted")),
        TRANSIENT,
        "ResourceGroupBeingDeleted",
        "deleting",
    ),
    _on(
        "a group that is going, on create",
        put(409, "ResourceGroupBeingDeleted"),
        INVALID,
        "ResourceGroupBeingDeleted",
        "deleting",
    ),
    _on(
        "a hook on a VM that is going",
        refused("extension.put", 409, body("OperationNotAllowed", _MARKED)),
        GONE,
        "OperationNotAllowed",
        "deleting",
    ),
    _on(
        "a name whose VM is going",
        quoted(11, more=True),
        TRANSIENT,
        "OperationNotAllowed",
        "deleting",
    ),
]

_QUOTAS = [
    _on(
        "Spot quota", quoted(1), QUOTA, "OperationNotAllowed", scope=Scope.REGION_SPOT, seconds=HOUR
    ),
    _on(
        "regional quota",
        quoted(0),
        QUOTA,
        "OperationNotAllowed",
        scope=Scope.REGION_ON_DEMAND,
        seconds=600,
    ),
    _on(
        "regional quota, other figures",
        quoted(0, more=True),
        QUOTA,
        "OperationNotAllowed",
        scope=Scope.REGION_ON_DEMAND,
        seconds=600,
    ),
    _on(
        "regional quota, old words",
        quoted(1, more=True),
        QUOTA,
        "OperationNotAllowed",
        scope=Scope.REGION_ON_DEMAND,
        seconds=600,
    ),
    _on(
        "regional quota in a template",
        recorded("errors-400-quota-in-template-validation", 0, "vm.put"),
        QUOTA,
        "QuotaExceeded",
        scope=Scope.REGION_ON_DEMAND,
        seconds=600,
    ),
    _on(
        "family quota",
        quoted(14, more=True),
        QUOTA,
        "OperationNotAllowed",
        scope=Scope.FAMILY,
        seconds=600,
    ),
    _on(
        "family quota of nothing",
        put(409, "OperationNotAllowed", _FAMILY.format("Standard NCASv3_T4 Family Cores", 0, 0)),
        QUOTA,
        "OperationNotAllowed",
        scope=Scope.FAMILY,
        seconds=HOUR,
    ),
    _on(
        "family quota inside an operation",
        later("OperationNotAllowed", _FAMILY.format("standardDSv5Family Cores", 10, 8)),
        QUOTA,
        "OperationNotAllowed",
        scope=Scope.FAMILY,
        seconds=600,
    ),
    _on(
        "another quota",
        put(409, "OperationNotAllowed", _FAMILY.format("Virtual Machines", 25000, 25000)),
        QUOTA,
        "OperationNotAllowed",
        scope=Scope.SIZE_PRIORITY,
        seconds=600,
    ),
    _on(
        "a quota without words",
        put(409, "ResourceQuotaExceeded"),
        QUOTA,
        "ResourceQuotaExceeded",
        scope=Scope.SIZE_PRIORITY,
        seconds=600,
    ),
    _on(
        "addresses",
        quoted(4),
        QUOTA,
        "PublicIPCountLimitReached",
        scope=Scope.PUBLIC_IP,
        seconds=600,
    ),
    _on(
        "static addresses",
        quoted(5),
        QUOTA,
        "StaticPublicIPCountLimitReached",
        scope=Scope.PUBLIC_IP,
        seconds=600,
    ),
    _on(
        "Basic addresses, other case",
        quoted(15, more=True),
        QUOTA,
        "IPv4BasicSkuPublicIpCountLimitReached",
        scope=Scope.PUBLIC_IP,
        seconds=600,
    ),
    _on(
        "addresses in a template",
        put(400, "ResourceCountExceedsLimitDueToTemplate"),
        QUOTA,
        "ResourceCountExceedsLimitDueToTemplate",
        scope=Scope.PUBLIC_IP,
        seconds=600,
    ),
    _on(
        "interfaces",
        put(400, "NetworkInterfaceCountLimitReached"),
        QUOTA,
        "NetworkInterfaceCountLimitReached",
        scope=Scope.SIZE_PRIORITY,
        seconds=600,
    ),
]

_SKU: dict[str, Any] = {
    "scope": Scope.SIZE_ZONE_PRIORITY,
    "seconds": 23 * HOUR,
    "spot_seconds": HOUR,
}

_ROOM = [
    _on(
        "a full subnet",
        put(400, "SubnetIsFull", "Subnet s does not have enough capacity for 1 IP addresses."),
        CAPACITY,
        "SubnetIsFull",
        scope=Scope.SUBNET,
        seconds=120,
    ),
    _on(
        "a small subnet",
        later("InsufficientSubnetSize"),
        CAPACITY,
        "InsufficientSubnetSize",
        scope=Scope.SUBNET,
        seconds=120,
    ),
    _on("a size without room", quoted(2), CAPACITY, "SkuNotAvailable", **_SKU),
    _on("a size without room, other words", quoted(3), CAPACITY, "SkuNotAvailable", **_SKU),
    _on("sizes without room", quoted(2, more=True), CAPACITY, "SkuNotAvailable", **_SKU),
    _on(
        "a size without room, in a template",
        put(400, "InvalidTemplateDeployment", details=[{"code": "SkuNotAvailable"}]),
        CAPACITY,
        "SkuNotAvailable",
        **_SKU,
    ),
    _on(
        "no room in the zone",
        quoted(7),
        CAPACITY,
        "ZonalAllocationFailed",
        scope=Scope.SIZE_ZONE,
        seconds=HOUR,
    ),
    _on(
        "too narrow in the zone",
        quoted(8),
        CAPACITY,
        "OverconstrainedZonalAllocationRequest",
        scope=Scope.SIZE_ZONE_PRIORITY,
        seconds=HOUR,
    ),
    _on(
        "too narrow in the zone, in details",
        quoted(3, more=True),
        CAPACITY,
        "OverconstrainedZonalAllocationRequest",
        scope=Scope.SIZE_ZONE_PRIORITY,
        seconds=HOUR,
    ),
    _on(
        "no room in the region",
        quoted(6),
        CAPACITY,
        "AllocationFailed",
        scope=Scope.REGIONAL,
        seconds=HOUR,
    ),
    _on(
        "no room in the region, in details",
        quoted(4, more=True),
        CAPACITY,
        "AllocationFailed",
        scope=Scope.REGIONAL,
        seconds=HOUR,
    ),
    _on(
        "too narrow in the region",
        quoted(13, more=True),
        CAPACITY,
        "OverconstrainedAllocationRequest",
        scope=Scope.SIZE_PRIORITY,
        seconds=HOUR,
    ),
    _on(
        "a size that is barred",
        put(400, "VMSizeNotSupported"),
        INVALID,
        "VMSizeNotSupported",
        scope=Scope.SIZE,
        seconds=23 * HOUR,
    ),
    _on(
        "a size that is barred, by words",
        put(400, "BadRequest", "The size Standard_M8 is not supported for subscription 0."),
        INVALID,
        "BadRequest",
        scope=Scope.SIZE,
        seconds=23 * HOUR,
    ),
]

_BUSY = [
    _on(
        "an interface kept",
        quoted(9),
        TRANSIENT,
        "NicReservedForAnotherVm",
        "names_taken",
        wait=180,
    ),
    _on(
        "an interface held",
        recorded("delete-vm-and-dependents", 1, "nic.delete"),
        TRANSIENT,
        "NicInUse",
        wait=30,
    ),
    _on(
        "an address held",
        recorded("delete-vm-and-dependents", 3, "ip.delete"),
        TRANSIENT,
        "PublicIPAddressCannotBeDeleted",
        wait=30,
    ),
    _on(
        "a subnet held",
        recorded("delete-vm-and-dependents", 4, "subnet.delete"),
        TRANSIENT,
        "InUseSubnetCannotBeDeleted",
        wait=30,
    ),
    _on("an interface of that name", put(400, "NicInUse"), TRANSIENT, "NicInUse", "names_taken"),
    _on(
        "a disk held",
        refused("disk.delete", 409, body("OperationNotAllowed", "Disk d is attached to VM m.")),
        TRANSIENT,
        "OperationNotAllowed",
        wait=30,
    ),
    _on(
        "a hook on a stopped VM",
        refused(
            "extension.put",
            409,
            body(
                "OperationNotAllowed",
                "Cannot modify extensions in the VM when the VM is not running.",
            ),
        ),
        TRANSIENT,
        "OperationNotAllowed",
    ),
    _on("an operation replaced", later("OperationPreempted"), TRANSIENT, "OperationPreempted"),
    _on(
        "a write of others",
        put(409, "ConflictingConcurrentWriteNotAllowed"),
        TRANSIENT,
        "ConflictingConcurrentWriteNotAllowed",
    ),
    _on(
        "another operation",
        recorded("network-409-another-operation", 0, "nic.delete"),
        TRANSIENT,
        "AnotherOperationInProgress",
    ),
    _on(
        "another operation without its id",
        recorded("network-409-another-operation-more", 0, "nic.delete"),
        TRANSIENT,
        "AnotherOperationInProgress",
    ),
    _on(
        "an operation cancelled",
        answers.operation_failed("compute.operation", {"status": "Canceled"}, {}, NOW),
        TRANSIENT,
        "OperationCanceled",
    ),
    _on(
        "a dependency inside an operation",
        later("ReferencedResourceNotProvisioned"),
        TRANSIENT,
        "ReferencedResourceNotProvisioned",
    ),
]

_SPECIFICATION = [
    _on(
        "CPU architecture",
        put(
            409,
            "OperationNotAllowed",
            "Cannot create a VM of size 's' because this VM size only "
            "supports a CPU Architecture of 'Arm64', but an image with 'x64' was given.",
        ),
        INVALID,
        "OperationNotAllowed",
    ),
    _on(
        "Hyper-V generation",
        put(400, "BadRequest", "The selected VM size 's' cannot boot Hypervisor Generation '1'."),
        INVALID,
        "BadRequest",
    ),
    _on(
        "an ephemeral disk",
        put(
            400,
            "NotSupported",
            "OS disk of Ephemeral VM with size greater than 32 GB is not "
            "allowed for VM size Standard_D2s_v3.",
        ),
        INVALID,
        "NotSupported",
    ),
    _on(
        "a host name",
        put(
            400,
            "InvalidParameter",
            "Linux host name cannot exceed 64 characters in length or "
            "contain the following characters: _",
            target="computerName",
        ),
        INVALID,
        "InvalidParameter",
    ),
    _on(
        "a purchase",
        recorded("errors-400-marketplace", 0, "vm.put"),
        INVALID,
        "MarketplacePurchaseEligibilityFailed",
    ),
    _on(
        "terms",
        put(400, "ResourcePurchaseValidationFailed"),
        INVALID,
        "ResourcePurchaseValidationFailed",
    ),
    _on("a plan", put(400, "VMMarketplaceInvalidInput"), INVALID, "VMMarketplaceInvalidInput"),
    _on(
        "a price",
        put(409, "SpotPriceGreaterThanProvidedMaxPrice"),
        INVALID,
        "SpotPriceGreaterThanProvidedMaxPrice",
    ),
    _on("a price of zero", put(400, "MaxPriceValueInvalid"), INVALID, "MaxPriceValueInvalid"),
    _on(
        "a price, by words",
        put(
            409,
            "OperationNotAllowed",
            "Unable to perform the operation since the provided max "
            "price '0.1 USD' is lower than the current spot price '0.2 USD'.",
        ),
        INVALID,
        "OperationNotAllowed",
    ),
    *(
        _on(code, put(400, code), INVALID, code)
        for code in (
            "AzureSpotVMNotSupportedInAvailabilitySet",
            "AzureSpotIsNotSupportedForThisVMSize",
            "AzureSpotFeatureNotEnabledForSubscription",
            "AzureSpotVMNotSupportedInVmssWithVMOrchestrationMode",
            "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines",
        )
    ),
    _on(
        "an unregistered provider",
        put(409, "MissingSubscriptionRegistration"),
        INVALID,
        "MissingSubscriptionRegistration",
    ),
    _on(
        "too many deployments",
        put(409, "DeploymentQuotaExceeded"),
        INVALID,
        "DeploymentQuotaExceeded",
    ),
    _on(
        "a VM without extensions",
        refused(
            "extension.put",
            409,
            body(
                "OperationNotAllowed",
                "This operation cannot be performed when extension operations are disallowed.",
            ),
        ),
        INVALID,
        "OperationNotAllowed",
    ),
    _on(
        "a second CustomScript",
        refused(
            "extension.put",
            400,
            body(
                "BadRequest", "Multiple VMExtensions per handler not supported for OS type 'Linux'."
            ),
        ),
        CONFLICT,
        "BadRequest",
    ),
    _on(
        "a tag",
        refused("tags.patch", 400, body("InvalidTagNameCharacters")),
        INVALID,
        "InvalidTagNameCharacters",
    ),
    _on("a parameter", recorded("errors-400-compute", 0, "vm.put"), INVALID, "InvalidParameter"),
    _on("a parameter inside an operation", later("NotSupported"), INVALID, "NotSupported"),
]

_RIGHTS = [
    _on(
        "a policy",
        put(403, "RequestDisallowedByPolicy", target="m"),
        DENIED,
        "RequestDisallowedByPolicy",
    ),
    _on("no right on a subnet", quoted(10, more=True), DENIED, "LinkedAuthorizationFailed"),
    _on(
        "no right",
        recorded("errors-403-authorizationfailed", 0, "vm.put"),
        DENIED,
        "AuthorizationFailed",
    ),
    _on(
        "no right to read",
        recorded("errors-403-authorizationfailed-more", 0, "vm.get"),
        DENIED,
        "AuthorizationFailed",
    ),
    _on("a lock", refused("vm.delete", 409, body("ScopeLocked")), DENIED, "ScopeLocked"),
    _on(
        "a subscription without writes",
        put(409, "ReadOnlyDisabledSubscription"),
        DENIED,
        "ReadOnlyDisabledSubscription",
    ),
    _on("a secret that is wrong", quoted(11), TRANSIENT, "invalid_client", "credential"),
    _on(
        "a secret that has expired",
        answers.no_answer(
            "vm.put",
            "Credential",
            "Authentication failed: AADSTS7000222: The provided client secret keys are expired.",
        ),
        TRANSIENT,
        "Credential",
        "credential",
    ),
    _on(
        "a tenant that is not known",
        answers.no_answer("vm.put", "Credential", "AADSTS90002: Tenant 'x' not found."),
        TRANSIENT,
        "Credential",
        "credential",
    ),
    _on(
        "a federated token that is not taken",
        answers.no_answer(
            "vm.put",
            "Credential",
            "AADSTS700213: No matching federated identity "
            "record found for presented assertion subject.",
        ),
        TRANSIENT,
        "Credential",
        "credential",
    ),
    _on(
        "a token service that is silent",
        answers.no_answer("vm.put", "Credential", "ManagedIdentityCredential: no response"),
        TRANSIENT,
        "Credential",
        "credential",
    ),
    _on(
        "another tenant",
        quoted(9, more=True),
        TRANSIENT,
        "InvalidAuthenticationTokenTenant",
        "credential",
    ),
    _on(
        "an old token",
        recorded("errors-401-expired-token", 0, "vm.get"),
        TRANSIENT,
        "ExpiredAuthenticationToken",
        "credential",
    ),
]

_GUEST = [
    _on(
        "a script without end",
        later("VMExtensionProvisioningTimeout"),
        INVALID,
        "VMExtensionProvisioningTimeout",
    ),
    _on(
        "a script that failed",
        recorded("extension-lro-failed", 2, "compute.operation"),
        INVALID,
        "VMExtensionProvisioningError",
    ),
    _on(
        "another script that failed",
        recorded("extension-failed-vmss-ade", 0, "compute.operation"),
        INVALID,
        "VMExtensionProvisioningError",
    ),
    _on(
        "a handler that failed",
        later("VMExtensionHandlerNonTransientError"),
        INVALID,
        "VMExtensionHandlerNonTransientError",
    ),
    _on(
        "an agent that is silent",
        recorded("vm-lro-failed-agent-timeout", 1, "compute.operation"),
        UNKNOWN,
        "VMAgentStatusCommunicationError",
    ),
    _on(
        "a guest that is late", later("OSProvisioningTimedOut"), TRANSIENT, "OSProvisioningTimedOut"
    ),
]

_VAGUE = [
    _on("a bare conflict", put(409, "Conflict"), TRANSIENT, "Conflict"),
    _on(
        "a run command that runs",
        refused(
            "extension.put",
            409,
            body("Conflict", "Run command extension execution is in progress."),
        ),
        TRANSIENT,
        "Conflict",
    ),
    _on(
        "something that is not allowed",
        put(409, "OperationNotAllowed"),
        UNKNOWN,
        "OperationNotAllowed",
    ),
    _on(
        "something that is not allowed, as 400",
        put(400, "OperationNotAllowed"),
        UNKNOWN,
        "OperationNotAllowed",
    ),
    _on(
        "maintenance",
        recorded("spot-vm-create-evict-delete", 6, "vm.put"),
        UNKNOWN,
        "OperationNotAllowed",
    ),
    _on(
        "an error of Azure inside an operation",
        later("InternalExecutionError"),
        TRANSIENT,
        "InternalExecutionError",
    ),
    _on(
        "a network operation without end",
        recorded("network-lro-failed", 0, "network.operation"),
        TRANSIENT,
        "GwmOperationTimeOut",
    ),
    _on("a bad request inside an operation", later("BadRequest"), INVALID, "BadRequest"),
    _on(
        "no answer",
        answers.no_answer("vm.put", "ServiceRequestError", "connection reset"),
        TRANSIENT,
        "ServiceRequestError",
    ),
    _on("an unknown 400", put(400, "SomethingNew"), INVALID, "SomethingNew"),
    _on("an unknown 401", put(401, "SomethingNew"), TRANSIENT, "SomethingNew", "credential"),
    _on(
        "an unknown 403",
        refused("vm.put", 403, b"<html><title>Forbidden</title></html>"),
        DENIED,
        "Http403",
    ),
    _on(
        "a 404 that ARM did not write",
        refused("vm.get", 404, b"<h1>Not Found</h1>"),
        UNKNOWN,
        "Http404",
    ),
    _on(
        "a 404 of a wrong address",
        refused("vm.get", 404, body("InvalidResourceType")),
        UNKNOWN,
        "InvalidResourceType",
    ),
    _on("an unknown 408", refused("vm.put", 408, b""), TRANSIENT, "Http408"),
    _on("an unknown 412", refused("tags.patch", 412, b""), TRANSIENT, "Http412"),
    _on(
        "an unknown 503",
        refused("vm.put", 503, b"busy", {"Retry-After": "7"}),
        TRANSIENT,
        "Http503",
        wait=7,
    ),
    _on(
        "a gateway", recorded("errors-504-gatewaytimeout", 0, "vm.put"), TRANSIENT, "GatewayTimeout"
    ),
    _on("an unknown 409", put(409, "SomethingNew"), UNKNOWN, "SomethingNew"),
    _on("an unknown operation error", later("SomethingNew"), UNKNOWN, "SomethingNew"),
    _on(
        "an operation without a reason",
        answers.operation_failed("compute.operation", {"status": "Failed"}, {}, NOW),
        UNKNOWN,
        "OperationFailed",
    ),
]

EXAMPLES: list[Example] = [
    *_THROTTLING,
    *_EXISTENCE,
    *_QUOTAS,
    *_ROOM,
    *_BUSY,
    *_SPECIFICATION,
    *_RIGHTS,
    *_GUEST,
    *_VAGUE,
]
