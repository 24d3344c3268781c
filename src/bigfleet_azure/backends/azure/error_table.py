"""The table of Azure's refusals: one ordered list of rules, as data.

Nothing is decided here; `errors` walks the list, and `docs/reference/azure-errors.md` is made from
it. Sources: azure-practice section 3, azure-facts section 2, and the field cases.
"""

from bigfleet_azure.backends.azure.error_rules import Rule, Step, on
from bigfleet_azure.backends.azure.verdict import Scope
from bigfleet_azure.domain.errors import FailureKind

MINUTE = 60.0
HOUR = 3600.0

THROTTLED_SECONDS = 60.0
"""Wait after a 429 that names none (azure-practice section 5, field case D1)."""

QUOTA_SECONDS = 10 * MINUTE
"""How long a used-up quota is believed (azure-practice section 3); usage is read as often."""

NO_QUOTA_SECONDS = HOUR
"""The same for a quota of nothing at all, and for that of Spot (azure-practice section 3)."""

SUBNET_SECONDS = 2 * MINUTE
"""How long a full subnet is believed (azure-practice section 3): addresses come back quickly."""

CAPACITY_SECONDS = HOUR
RESTRICTED_SECONDS = 23 * HOUR
"""How long missing room and a restricted size are believed (azure-practice section 3)."""

NIC_RESERVED_SECONDS = 180.0
"""Azure holds an interface that long for the VM it was made for (field case A1)."""

HELD_SECONDS = 30.0
"""Pause before something that another resource holds is asked for again."""

_AGAIN = "It is tried again by itself."
_THROTTLED = f"Azure wants fewer calls. {_AGAIN}"
_CHANGING = f"A network resource that is needed is being changed. {_AGAIN}"
_CHANGED = f"The resource was changed meanwhile. {_AGAIN}"
_QUOTA = "It is tried again until the deadline; ask for more quota, or offer other sizes."
_ROOM = "It is tried again until the deadline; offer other sizes or zones as well."
_EXISTS = "The VM of that name is read, and adopted if this operation made it."
_BARRED = "The subscription may not have this size: ask for it, or take it out of the offerings."
_PRICE = "Correct the offering's max price: -1, or more than Spot costs now."
_CORRECT = "Azure's words name what to correct."
_TROUBLE = f"Azure has trouble of its own. {_AGAIN}"

_QUOTA_CODES = "OperationNotAllowed QuotaExceeded ResourceQuotaExceeded"
_TOKEN_CODES = "Credential invalid_client unauthorized_client invalid_grant invalid_request"
_SPECIFICATION_CODES = "BadRequest InvalidParameter NotSupported"
_ON_A_VM = "extension.* tags.* vm.start"

_THROTTLE = (
    on("RetryableError", FailureKind.TRANSIENT, _CHANGING, step=Step.THROTTLE, status="429"),
    on(
        "",
        FailureKind.THROTTLED,
        _THROTTLED,
        step=Step.THROTTLE,
        status="429",
        busy_seconds=THROTTLED_SECONDS,
    ),
    on(
        "TooManyRequests *RequestsThrottled",
        FailureKind.THROTTLED,
        _THROTTLED,
        step=Step.THROTTLE,
        busy_seconds=THROTTLED_SECONDS,
    ),
    on(
        "OperationNotAllowed",
        FailureKind.THROTTLED,
        _THROTTLED,
        step=Step.THROTTLE,
        says=("too many requests",),
        busy_seconds=THROTTLED_SECONDS,
    ),
)

_EXISTENCE = (
    on("PropertyChangeNotAllowed", FailureKind.CONFLICT, _EXISTS, exists=True),
    on("", FailureKind.CONFLICT, _EXISTS, status="412", calls="vm.put", exists=True),
    on(
        "ConflictingUserInput",
        FailureKind.TRANSIENT,
        "A disk of an earlier try has the name. The next try takes new names.",
        says=("already exists",),
        names_taken=True,
    ),
    on(
        "",
        FailureKind.CONFLICT,
        _EXISTS,
        says=("already exists",),
        status="409",
        calls="vm.put",
        exists=True,
    ),
    on("PreconditionFailed", FailureKind.TRANSIENT, _CHANGED),
    on(
        "SubscriptionNotFound",
        FailureKind.GONE,
        status="404",
        calls="subscription.get",
        gone=True,
    ),
    on(
        "SubscriptionNotFound InvalidSubscriptionId",
        FailureKind.DENIED,
        "Check --subscription-id, and that the identity is of the subscription's tenant.",
    ),
    on("*NotFound", FailureKind.GONE, status="404", calls="*.get *.delete", gone=True),
    on(
        "*NotFound",
        FailureKind.GONE,
        "The VM does not exist any more.",
        status="404",
        calls=_ON_A_VM,
    ),
    on(
        "*NotFound",
        FailureKind.TRANSIENT,
        "Azure no longer reports on the operation; the VM itself is asked.",
        status="404",
        calls="*.operation",
    ),
    on(
        "ResourceGroupNotFound",
        FailureKind.INVALID,
        "Create the resource group, or correct --resource-group.",
    ),
    on(
        "PlatformImageNotFound GalleryImageNotFound ImageNotFound",
        FailureKind.INVALID,
        "Correct --image or the offering's image: it does not exist in this location.",
    ),
    on(
        "*NotFound",
        FailureKind.INVALID,
        "Something that the VM refers to does not exist: check image, subnet, groups and pools.",
        status="404",
        calls="vm.put",
    ),
    on(
        "InvalidResourceReference",
        FailureKind.INVALID,
        "Check the ids of subnet, groups, pools and identities: what is named must exist in the "
        "same location.",
    ),
    on(
        "ResourceGroupBeingDeleted",
        FailureKind.TRANSIENT,
        f"All of the resource group is being deleted. {_AGAIN}",
        calls="*.delete",
        deleting=True,
    ),
    on(
        "ResourceGroupBeingDeleted",
        FailureKind.INVALID,
        "The resource group is being deleted: give the daemon another one.",
        deleting=True,
    ),
    on(
        "OperationNotAllowed",
        FailureKind.GONE,
        "Somebody is deleting the VM; it is lost.",
        says=("marked for deletion",),
        calls=_ON_A_VM,
        deleting=True,
    ),
    on(
        "OperationNotAllowed",
        FailureKind.TRANSIENT,
        "The VM of that name is being deleted; its end is waited for.",
        says=("marked for deletion",),
        deleting=True,
    ),
)

_LACK = (
    on(
        _QUOTA_CODES,
        FailureKind.QUOTA,
        _QUOTA,
        says=("LowPriorityCores",),
        scope=Scope.REGION_SPOT,
        seconds=NO_QUOTA_SECONDS,
    ),
    on(
        _QUOTA_CODES,
        FailureKind.QUOTA,
        _QUOTA,
        says=("Total Regional Cores", "quota limits of Core"),
        scope=Scope.REGION_ON_DEMAND,
        seconds=QUOTA_SECONDS,
    ),
    on(
        _QUOTA_CODES,
        FailureKind.QUOTA,
        _QUOTA,
        says=("Cores quota",),
        scope=Scope.FAMILY,
        seconds=QUOTA_SECONDS,
    ),
    on(
        _QUOTA_CODES,
        FailureKind.QUOTA,
        _QUOTA,
        says=("exceeding approved", "exceeding quota"),
        scope=Scope.SIZE_PRIORITY,
        seconds=QUOTA_SECONDS,
    ),
    on(
        "QuotaExceeded ResourceQuotaExceeded",
        FailureKind.QUOTA,
        _QUOTA,
        scope=Scope.SIZE_PRIORITY,
        seconds=QUOTA_SECONDS,
    ),
    on(
        "*PublicIPCountLimitReached ResourceCountExceedsLimitDueToTemplate",
        FailureKind.QUOTA,
        "Look for public IP addresses that nothing uses, or ask for more of them.",
        scope=Scope.PUBLIC_IP,
        seconds=QUOTA_SECONDS,
    ),
    on(
        "*CountLimitReached",
        FailureKind.QUOTA,
        _QUOTA,
        scope=Scope.SIZE_PRIORITY,
        seconds=QUOTA_SECONDS,
    ),
    on(
        "SubnetIsFull InsufficientSubnetSize",
        FailureKind.OUT_OF_CAPACITY,
        "Enlarge the subnet, or give offerings another one.",
        scope=Scope.SUBNET,
        seconds=SUBNET_SECONDS,
    ),
    on(
        "SkuNotAvailable",
        FailureKind.OUT_OF_CAPACITY,
        f"Azure has no room for this size, or the subscription may not have it here. {_ROOM}",
        scope=Scope.SIZE_ZONE_PRIORITY,
        seconds=RESTRICTED_SECONDS,
        spot_seconds=CAPACITY_SECONDS,
    ),
    on(
        "ZonalAllocationFailed",
        FailureKind.OUT_OF_CAPACITY,
        _ROOM,
        scope=Scope.SIZE_ZONE,
        seconds=CAPACITY_SECONDS,
    ),
    on(
        "OverconstrainedZonalAllocationRequest",
        FailureKind.OUT_OF_CAPACITY,
        _ROOM,
        scope=Scope.SIZE_ZONE_PRIORITY,
        seconds=CAPACITY_SECONDS,
    ),
    on(
        "AllocationFailed",
        FailureKind.OUT_OF_CAPACITY,
        _ROOM,
        scope=Scope.REGIONAL,
        seconds=CAPACITY_SECONDS,
    ),
    on(
        "OverconstrainedAllocationRequest",
        FailureKind.OUT_OF_CAPACITY,
        _ROOM,
        scope=Scope.SIZE_PRIORITY,
        seconds=CAPACITY_SECONDS,
    ),
    on(
        "VMSizeNotSupported",
        FailureKind.INVALID,
        _BARRED,
        scope=Scope.SIZE,
        seconds=RESTRICTED_SECONDS,
    ),
    on(
        _SPECIFICATION_CODES,
        FailureKind.INVALID,
        _BARRED,
        says=("is not supported for subscription",),
        scope=Scope.SIZE,
        seconds=RESTRICTED_SECONDS,
    ),
)

_BUSY = (
    on(
        "NicReservedForAnotherVm",
        FailureKind.TRANSIENT,
        f"Azure keeps the interface for a VM that was not made. {_AGAIN}",
        busy_seconds=NIC_RESERVED_SECONDS,
        names_taken=True,
    ),
    on(
        "NicInUse *CannotBeDeleted",
        FailureKind.TRANSIENT,
        f"Something still holds it. {_AGAIN}",
        calls="*.delete",
        busy_seconds=HELD_SECONDS,
    ),
    on(
        "NicInUse",
        FailureKind.TRANSIENT,
        "Another VM has an interface of that name. The next try takes new names.",
        names_taken=True,
    ),
    on(
        "OperationNotAllowed",
        FailureKind.TRANSIENT,
        f"The disk can go when its VM is gone. {_AGAIN}",
        says=("is attached to VM",),
        busy_seconds=HELD_SECONDS,
    ),
    on(
        "OperationNotAllowed",
        FailureKind.TRANSIENT,
        "The VM stopped meanwhile; it is started, and the hook sent again.",
        says=("when the VM is not running",),
    ),
    on(
        "OperationPreempted ConflictingConcurrentWriteNotAllowed AnotherOperationInProgress "
        "CanceledAndSupersededDueToAnotherOperation OperationCanceled OperationCancelled",
        FailureKind.TRANSIENT,
        f"Somebody else wrote at the same time. {_AGAIN}",
    ),
    on(
        "RetryableError RetryableErrorDueToAnotherOperation ReferencedResourceNotProvisioned",
        FailureKind.TRANSIENT,
        _CHANGING,
    ),
)

_SPECIFICATION = (
    on(
        f"OperationNotAllowed {_SPECIFICATION_CODES}",
        FailureKind.INVALID,
        "Take an image of the CPU architecture and Hyper-V generation that the size runs.",
        says=("CPU Architecture", "Hypervisor Generation"),
    ),
    on(
        _SPECIFICATION_CODES,
        FailureKind.INVALID,
        "The OS disk does not fit as an ephemeral one: make it smaller, or turn that off.",
        says=("ephemeral",),
    ),
    on(
        "InvalidParameter",
        FailureKind.INVALID,
        "A host name has at most 64 letters, digits and hyphens: check --provider.",
        says=("host name",),
    ),
    on(
        "MarketplacePurchaseEligibilityFailed ResourcePurchaseValidationFailed "
        "VMMarketplaceInvalidInput",
        FailureKind.INVALID,
        "Give the image's plan, and accept its terms in the subscription; the daemon accepts none.",
    ),
    on(
        "SpotPriceGreaterThanProvidedMaxPrice MaxPriceValueInvalid",
        FailureKind.INVALID,
        _PRICE,
    ),
    on("OperationNotAllowed", FailureKind.INVALID, _PRICE, says=("max price",)),
    on(
        "AzureSpot* EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines",
        FailureKind.INVALID,
        "Spot does not go with this size, subscription or setting: correct the offering.",
    ),
    on(
        "MissingSubscriptionRegistration NoRegisteredProviderFound",
        FailureKind.INVALID,
        "Register the resource provider in the subscription (az provider register).",
    ),
    on(
        "DeploymentQuotaExceeded",
        FailureKind.INVALID,
        "Remove old deployments from the resource group; the daemon makes none.",
    ),
    on(
        "OperationNotAllowed",
        FailureKind.INVALID,
        "The VM takes no extensions: use --bootstrap-method none, or an image with an agent.",
        says=("extension operations are disallowed",),
    ),
    on(
        "BadRequest",
        FailureKind.CONFLICT,
        "Another CustomScript extension is on the VM, and Azure takes one: remove it from the "
        "image's or the policy's deployment.",
        says=("Multiple VMExtensions per handler",),
    ),
    on(
        "InvalidTagNames InvalidTagNameCharacters InvalidTagCount InvalidTagsLength "
        "TagNameTooLong TagValueTooLong ReservedTagName",
        FailureKind.INVALID,
        "Correct the user tags: Azure does not take one of them.",
    ),
    on("InvalidParameter NotSupported", FailureKind.INVALID, _CORRECT),
)

_RIGHTS = (
    on(
        "RequestDisallowedByPolicy RequestDisallowedByAzure",
        FailureKind.DENIED,
        "A policy forbids it: change the offering's settings, or ask for an exemption.",
    ),
    on(
        "LinkedAuthorizationFailed LinkedAccessCheckFailed",
        FailureKind.DENIED,
        "Give the identity the action that is named, on the subnet, image or other resource that "
        "is named.",
    ),
    on(
        "AuthorizationFailed",
        FailureKind.DENIED,
        "Give the identity a role with the action that is named, on the scope that is named.",
    ),
    on("ScopeLocked", FailureKind.DENIED, "Remove the lock from the scope that is named."),
    on(
        "ReadOnlyDisabledSubscription",
        FailureKind.DENIED,
        "The subscription is disabled and takes no writes until somebody enables it.",
    ),
)

_CREDENTIAL = (
    on(
        _TOKEN_CODES,
        FailureKind.TRANSIENT,
        "The client secret has expired: make a new one and restart the daemon with it.",
        says=("AADSTS7000222",),
        credential=True,
    ),
    on(
        _TOKEN_CODES,
        FailureKind.TRANSIENT,
        "The client secret is wrong: give its value, not its id, and restart the daemon.",
        says=("AADSTS7000215",),
        credential=True,
    ),
    on(
        _TOKEN_CODES,
        FailureKind.TRANSIENT,
        "The tenant or the application is not known: check tenant id and client id.",
        says=("AADSTS700016", "AADSTS90002"),
        credential=True,
    ),
    on(
        _TOKEN_CODES,
        FailureKind.TRANSIENT,
        "The federated token is not accepted: check issuer and subject of the federated "
        "credential, and that the token file is renewed.",
        says=("AADSTS70021", "AADSTS700024"),
        credential=True,
    ),
    on(
        "InvalidAuthenticationTokenTenant",
        FailureKind.TRANSIENT,
        "The identity is of another tenant than the subscription: correct the tenant id.",
        credential=True,
    ),
    on(
        f"{_TOKEN_CODES} ExpiredAuthenticationToken InvalidAuthenticationToken "
        "AuthenticationFailed",
        FailureKind.TRANSIENT,
        "No valid token is to be had; another one is asked for.",
        credential=True,
    ),
)

_GUEST = (
    on(
        "VMExtensionProvisioningTimeout",
        FailureKind.INVALID,
        "The script in the guest did not end: see the guest's log and the boot diagnostics.",
    ),
    on(
        "VMExtensionProvisioningError VMExtensionHandlerNonTransientError",
        FailureKind.INVALID,
        "The script in the guest failed: see the guest's log and the boot diagnostics.",
    ),
    on(
        "VMAgentStatusCommunicationError",
        FailureKind.UNKNOWN,
        "No guest agent answers: an image without one needs --bootstrap-method none, else see the "
        "boot diagnostics.",
    ),
    on(
        "OSProvisioningTimedOut",
        FailureKind.TRANSIENT,
        "The guest may still come up; the VM itself is asked. If it does not, see the boot "
        "diagnostics.",
    ),
)

_VAGUE = (
    on(
        "Conflict",
        FailureKind.TRANSIENT,
        f"Something else is going on there. {_AGAIN}",
        step=Step.VAGUE,
    ),
    on(
        "OperationNotAllowed",
        FailureKind.UNKNOWN,
        f"Azure has many meanings for this code; its words say more. {_AGAIN}",
        step=Step.VAGUE,
    ),
    on(
        "Internal* Networking* ServiceUnavailable ServerTimeout GatewayTimeout *TimeOut *TimedOut",
        FailureKind.TRANSIENT,
        _TROUBLE,
        step=Step.VAGUE,
    ),
    on("BadRequest", FailureKind.INVALID, _CORRECT, step=Step.VAGUE),
)

_STATUS = (
    on("", FailureKind.TRANSIENT, f"No answer came. {_AGAIN}", step=Step.STATUS, status="0"),
    on("", FailureKind.INVALID, _CORRECT, step=Step.STATUS, status="400"),
    on(
        "",
        FailureKind.TRANSIENT,
        "Azure does not accept our token; another one is asked for.",
        step=Step.STATUS,
        status="401",
        credential=True,
    ),
    on(
        "",
        FailureKind.DENIED,
        "Azure's words name what forbids it.",
        step=Step.STATUS,
        status="403",
    ),
    on("", FailureKind.TRANSIENT, _TROUBLE, step=Step.STATUS, status="408"),
    on("", FailureKind.TRANSIENT, _CHANGED, step=Step.STATUS, status="412"),
    on("", FailureKind.TRANSIENT, _TROUBLE, step=Step.STATUS, status="5xx"),
    on(
        "",
        FailureKind.UNKNOWN,
        "The daemon does not know this refusal; it is tried again until the deadline.",
        step=Step.STATUS,
    ),
)

RULES: tuple[Rule, ...] = (
    *_THROTTLE,
    *_EXISTENCE,
    *_LACK,
    *_BUSY,
    *_SPECIFICATION,
    *_RIGHTS,
    *_CREDENTIAL,
    *_GUEST,
    *_VAGUE,
    *_STATUS,
)
"""All rules, in the order in which they are tried."""
