"""Reading the texts of the Azure backend's settings: flags and offering keys alike.

As in `values`, a reader raises ValueError with the rest of a sentence that begins with the value.
What needs a file, or a second setting, is `azure`'s. Patterns are compiled when they are first
needed, since every start pays for this module.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from bigfleet_azure.domain import quantity

_GUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DOMAIN = r"[a-z0-9-]+(?:\.[a-z0-9-]+)+"
_GROUP = r"[\w.()-]{0,89}[\w()-]"
"""1 to 90 letters, digits, `_`, `-`, `.`, brackets; no dot at the end (Azure's naming rules for
resource groups)."""

_SEGMENT = r"[\w.()-]{1,260}"
_ARM_SCOPE = rf"/subscriptions/{_GUID}/resourceGroups/{_GROUP}/providers/"

ARM_TYPES: Mapping[str, tuple[str, str]] = {
    "subnet": (
        "a subnet",
        "Microsoft.Network/virtualNetworks/<network>/subnets/<subnet>",
    ),
    "nsg": ("a network security group", "Microsoft.Network/networkSecurityGroups/<name>"),
    "asg": ("an application security group", "Microsoft.Network/applicationSecurityGroups/<name>"),
    "lb-pool": (
        "a load balancer's backend pool",
        "Microsoft.Network/loadBalancers/<balancer>/backendAddressPools/<pool>",
    ),
    "availability-set": ("an availability set", "Microsoft.Compute/availabilitySets/<name>"),
    "identity": (
        "a user-assigned identity",
        "Microsoft.ManagedIdentity/userAssignedIdentities/<name>",
    ),
    "reservation": (
        "a capacity reservation group",
        "Microsoft.Compute/capacityReservationGroups/<name>",
    ),
    "disk-encryption-set": ("a disk encryption set", "Microsoft.Compute/diskEncryptionSets/<name>"),
}
"""What an id may be asked to name: in words, and the end of its path."""

OS_DISK_TYPES = (
    "auto",
    "Premium_LRS",
    "StandardSSD_LRS",
    "Standard_LRS",
    "Premium_ZRS",
    "StandardSSD_ZRS",
)
"""Storage account types that an OS disk can have; ultra and Premium v2 are for data disks only
(compute 2024-07-01, `StorageAccountTypes`)."""

SECURITY_TYPES = ("Standard", "TrustedLaunch", "ConfidentialVM")
DISK_CONTROLLERS = ("auto", "SCSI", "NVMe")
SWITCHES = ("auto", "on", "off")
EVICTION_POLICIES = ("Delete", "Deallocate")
AZURE_ZONES = ("1", "2", "3", "none")

MAX_OS_DISK_GIB = 4095
"""Largest OS disk (Azure's documented disk limits)."""

_REFUSED_USERS = (
    "1|123|a|actuser|adm|admin[12]?|administrator|aspnet|backup|console|david|guest|john|owner|"
    "root|server|sql|support|support_388945a0|sys|test[123]?|user[1-5]?"
)
"""Names that Azure refuses (compute 2024-07-01, `OSProfile.adminUsername`)."""

_TAG_FORBIDDEN = "<>%&\\?"
_TAG_RESERVED = ("microsoft", "azure", "windows")
MAX_TAG_KEY = 512
MAX_TAG_VALUE = 256
"""Limits and forbidden characters of tags (azure-facts section 4.3); `/` becomes `_`."""

OUR_TAGS = "bigfleet-"
"""How the names of the daemon's own tags begin."""


def guid(text: str) -> str:
    """The id of a subscription or application; empty for none."""
    if text and not re.fullmatch(_GUID, text, re.IGNORECASE):
        raise ValueError("is no id such as 0b1f6471-1bf0-4dda-aec3-cb9272f09590")
    return text.lower()


def tenant(text: str) -> str:
    """The id or a domain name of a tenant; empty for none."""
    if text and not re.fullmatch(rf"{_GUID}|{_DOMAIN}", text, re.IGNORECASE):
        raise ValueError(
            "is no tenant; give its id, such as 0b1f6471-1bf0-4dda-aec3-cb9272f09590, or its "
            "domain name"
        )
    return text


def resource_group(text: str) -> str:
    """The name of a resource group; empty for none."""
    if text and not re.fullmatch(_GROUP, text):
        raise ValueError(
            "is not the name of a resource group: 1 to 90 letters, digits, '_', '-', '.' and "
            "brackets, without a dot at the end"
        )
    return text


def arm_id(kind: str) -> Callable[[str], str]:
    """A reader of the full id of a resource of that kind; empty for none."""
    words, path = ARM_TYPES[kind]

    def parse(text: str) -> str:
        pattern = _ARM_SCOPE + re.sub("<[a-z]+>", lambda _: _SEGMENT, re.escape(path))
        if text and not re.fullmatch(pattern, text, re.IGNORECASE):
            raise ValueError(
                f"is not the id of {words}; write it as /subscriptions/<id>/resourceGroups/"
                f"<group>/providers/{path}"
            )
        return text

    return parse


def arm_ids(kind: str) -> Callable[[str], tuple[str, ...]]:
    """A reader of such ids, separated by commas."""
    one = arm_id(kind)

    def parse(text: str) -> tuple[str, ...]:
        items = [item.strip() for item in text.split(",")] if text else []
        return distinct_ids(items, one)

    return parse


def distinct_ids(items: Iterable[str], one: Callable[[str], str]) -> tuple[str, ...]:
    """Ids, each read by `one` and none of them twice."""
    found: dict[str, str] = {}
    for item in items:
        if not item:
            raise ValueError("has an empty place in its list")
        try:
            found.setdefault(item.lower(), one(item))
        except ValueError as error:
            raise ValueError(f"has {item!r}, which {error}") from None
    return tuple(found.values())


def https_url(text: str) -> str:
    """The address of an HTTPS service, without a path; empty for none."""
    if text and not re.fullmatch(r"https://(?:[\w.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?/?", text):
        raise ValueError("is no address such as https://management.azure.com")
    return text.rstrip("/")


def owner(text: str) -> str:
    """What says whose a machine is; empty for the default."""
    if _units(text) > MAX_TAG_VALUE or not text.isprintable() or text != text.strip():
        raise ValueError(
            f"cannot be the value of a tag: up to {MAX_TAG_VALUE} printable characters, without "
            "space at either end"
        )
    return text


def admin_username(text: str) -> str:
    """The name of the user that the SSH key lets in."""
    if re.fullmatch(_REFUSED_USERS, text, re.IGNORECASE):
        raise ValueError("is a name that Azure refuses; choose another one, such as bigfleet")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", text) or text.endswith("-"):
        raise ValueError(
            "is no name of 1 to 64 letters, digits, '_', '.' and '-' that begins with a letter or "
            "'_' and does not end with '-'"
        )
    return text


def hook(text: str) -> str:
    """The path of a program in the image."""
    if not text.startswith("/") or not text.isprintable() or text.endswith("/"):
        raise ValueError("is not the full path of a program, such as /opt/bigfleet/bootstrap")
    return text


def cluster(text: str) -> str:
    """The id of a cluster; empty for none. It is the name of the cluster's kubeconfig, too."""
    if len(text) > 253 or not text.isprintable() or "/" in text or text.startswith("."):
        raise ValueError("is no plain name, which a kubeconfig in --kubeconfig-dir must have")
    return text


def max_price(text: str) -> float:
    """The most that a Spot VM may cost, USD per hour; -1 for up to the on-demand price."""
    if not re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?", text) or not is_price_limit(float(text)):
        raise ValueError(
            "is no price; write -1 for up to the on-demand price, or USD per hour such as 0.25"
        )
    return float(text)


def is_price_limit(price: float) -> bool:
    """Whether Azure takes it as the most that a Spot VM may cost."""
    return price == -1 or 0 < price < float("inf")


def quantity_of(unit: int, example: str) -> Callable[[str], int | None]:
    """A reader of a Kubernetes quantity, in units of 1/`unit`; empty for none."""

    def parse(text: str) -> int | None:
        if not text:
            return None
        try:
            return int(quantity.parse(text) * unit)
        except ValueError:
            raise ValueError(f"is not a Kubernetes quantity such as {example}") from None

    return parse


def tags(text: str) -> dict[str, str]:
    """User tags, written k=v,k2=v2."""
    pairs: list[tuple[str, str]] = []
    for item in text.split(",") if text else ():
        key, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"has {item!r}, which is no tag; write it as key=value")
        pairs.append((key.strip(), value.strip()))
    return clean_tags(pairs)


def clean_tags(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Tags as Azure takes them: `/` in a name becomes `_`, all else that it refuses is a fault.

    Raises:
        ValueError: a name or a value that Azure refuses, or two names that come to the same.
    """
    found: dict[str, str] = {}
    written: dict[str, str] = {}
    for key, value in pairs:
        clean = key.replace("/", "_")
        fault = _tag_fault(clean, value)
        if fault:
            raise ValueError(f"has the tag {key!r}, {fault}")
        if clean.lower() in written:
            raise ValueError(
                f"has the tags {written[clean.lower()]!r} and {key!r}, which are one to Azure: "
                "'/' becomes '_', and case does not count; remove one"
            )
        written[clean.lower()] = key
        found[clean] = value
    return found


def _tag_fault(key: str, value: str) -> str:
    bad = sorted(set(key) & set(_TAG_FORBIDDEN))
    if bad:
        return f"which must not contain {' '.join(bad)}"
    if not key or not key.isprintable() or _units(key) > MAX_TAG_KEY:
        return f"whose name is not of 1 to {MAX_TAG_KEY} printable characters"
    if _units(value) > MAX_TAG_VALUE or not value.isprintable():
        return f"whose value is not of at most {MAX_TAG_VALUE} printable characters"
    for prefix in (*_TAG_RESERVED, OUR_TAGS):
        if key.lower().startswith(prefix):
            whose = "this daemon's own" if prefix == OUR_TAGS else "Azure's own"
            return f"but names that begin with {prefix} are {whose}"
    return ""


def _units(text: str) -> int:
    """Azure counts UTF-16 units, of which rare characters have two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
