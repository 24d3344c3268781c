"""Images: how the operator names one, what goes into the VM's PUT, and what Azure says of it.

Everything that Azure says is optional: what is not known is no reason to refuse an offering.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Json = dict[str, Any]

IMAGES_API = "2026-04-01"
GALLERIES_API = "2026-03-03"
"""The defaults of azure-mgmt-compute 39 for managed images and for galleries."""

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_URN = re.compile(rf"({_PART}):({_PART}):({_PART}):(latest|[0-9]+(?:\.[0-9]+)*)", re.IGNORECASE)
_PLAN = re.compile(rf"({_PART}):({_PART}):({_PART})")
_NAME = r"[^/\s]+"
_COMPUTE = rf"/subscriptions/{_NAME}/resourceGroups/{_NAME}/providers/Microsoft\.Compute"
_MANAGED = re.compile(rf"{_COMPUTE}/images/{_NAME}", re.IGNORECASE)
_GALLERY = re.compile(
    rf"({_COMPUTE}/galleries/{_NAME}/images/{_NAME})(?:/versions/(latest|[0-9]+\.[0-9]+\.[0-9]+))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What Azure says of an image.

    Attributes:
        linux: False for Windows.
        generalized: False for a specialized image, which takes no osProfile.
        generation: V1 or V2; "" when not said.
        architecture: x64 or Arm64; "" when not said.
        controllers: disk controllers it is marked for; None when not said.
        security: security types it is marked for, such as TrustedLaunchSupported, in lower case;
            None when not said.
        accelerated_networking: None when not said.
        os_disk_gib: size of its OS disk; 0 when not said.
        plan: the marketplace plan that it needs, as publisher:product:name; "" for none.
    """

    linux: bool = True
    generalized: bool = True
    generation: str = ""
    architecture: str = ""
    controllers: frozenset[str] | None = None
    security: frozenset[str] | None = None
    accelerated_networking: bool | None = None
    os_disk_gib: int = 0
    plan: str = ""


class Reads(Protocol):
    """The calls that `look_up` makes; raises what they raise."""

    async def platform_versions(self, image: str) -> list[Json]:
        """The newest version of a marketplace image."""

    async def platform_image(self, image: str, version: str) -> Json | None:
        """One version of a marketplace image; None when it does not exist."""

    async def read(self, call: str, path: str, version: str) -> Json | None:
        """Any resource by its id; None when it does not exist."""


def reference_of(image: str) -> Json:
    """The `imageReference` of a VM's PUT.

    Raises:
        ValueError: `image` is formed like none that a VM can be made from.
    """
    urn = _URN.fullmatch(image)
    if urn:
        return dict(zip(("publisher", "offer", "sku", "version"), urn.groups(), strict=True))
    gallery = _GALLERY.fullmatch(image)
    if gallery:
        # The newest version is named by naming none (compute 2024-07-01, ImageReference).
        newest = (gallery[2] or "latest").lower() == "latest"
        return {"id": gallery[1] if newest else image}
    if _MANAGED.fullmatch(image):
        return {"id": image}
    raise ValueError(
        f"{image!r} is no image; give publisher:offer:sku:version (version may be `latest`), or "
        "the full id of a managed image, of a compute-gallery image or of one of its versions"
    )


def plan_of(plan: str) -> dict[str, str]:
    """The `plan` of a VM's PUT.

    Raises:
        ValueError: `plan` is not publisher:product:name.
    """
    match = _PLAN.fullmatch(plan)
    if match is None:
        raise ValueError(f"{plan!r} is no marketplace plan; give publisher:product:name")
    return dict(zip(("publisher", "product", "name"), match.groups(), strict=True))


async def look_up(reads: Reads, image: str) -> ImageFacts | None:
    """Ask Azure about an image of any kind; None when it does not exist.

    Raises:
        ValueError: as `reference_of`.
    """
    reference = reference_of(image)
    identity = str(reference.get("id", ""))
    documents: list[Json | None]
    if not identity:
        version = str(reference["version"])
        if version.lower() == "latest":
            versions = await reads.platform_versions(image)
            version = str(versions[0]["name"]) if versions else ""
        documents = [await reads.platform_image(image, version) if version else None]
    elif gallery := _GALLERY.fullmatch(identity):
        documents = [await reads.read("gallery-image.get", gallery[1], GALLERIES_API)]
        if gallery[2] and documents[0] is not None:
            documents.append(await reads.read("gallery-version.get", identity, GALLERIES_API))
    else:
        documents = [await reads.read("image.get", identity, IMAGES_API)]
    found = [one for one in documents if one is not None]
    return image_of(*found) if len(found) == len(documents) else None


def image_of(*documents: Json) -> ImageFacts:
    """What the answers about one image say together: image and version of a gallery, or one."""
    said: Json = {}
    for document in documents:
        said |= _mapping(document.get("properties"))
    features = _features(said)
    disk = _os_disk(said)
    fast = _feature(features, "isacceleratednetworksupported")
    kind = str(said.get("osType") or disk.get("osType") or disk.get("operatingSystem") or "")
    state = str(said.get("osState") or disk.get("osState") or "")
    return ImageFacts(
        linux=kind.lower() != "windows",
        generalized=state.lower() != "specialized",
        generation=str(said.get("hyperVGeneration") or ""),
        architecture=str(said.get("architecture") or ""),
        controllers=_controllers(features),
        security=None if features is None else _security(features),
        accelerated_networking=None if not fast else fast.lower() == "true",
        os_disk_gib=_gib(disk),
        plan=_plan(said),
    )


def _features(said: Json) -> dict[str, str] | None:
    """By name in lower case; None for images that have none to be marked with."""
    listed = said.get("features")
    if not isinstance(listed, list):
        return None
    return {
        str(each.get("name", "")).lower(): str(each.get("value") or "")
        for each in listed
        if isinstance(each, dict)
    }


def _feature(features: Mapping[str, str] | None, name: str) -> str:
    return (features or {}).get(name, "")


def _controllers(features: Mapping[str, str] | None) -> frozenset[str] | None:
    """An image that could be marked for NVMe and is not is for SCSI only."""
    if features is None:
        return None
    marked = _feature(features, "diskcontrollertypes").upper()
    return frozenset(kind for kind in ("SCSI", "NVMe") if kind.upper() in marked) or frozenset(
        {"SCSI"}
    )


def _security(features: Mapping[str, str]) -> frozenset[str]:
    marked = _feature(features, "securitytype").lower()
    return frozenset(part for each in marked.split(",") if (part := each.strip()))


def _os_disk(said: Json) -> Json:
    """The OS disk, which each kind of image has in another place."""
    storage = _mapping(said.get("storageProfile"))
    for found in (said.get("osDiskImage"), storage.get("osDiskImage"), storage.get("osDisk")):
        if isinstance(found, dict):
            return found
    return {}


def _gib(disk: Json) -> int:
    for key in ("sizeInGb", "sizeInGB", "diskSizeGB"):
        size = disk.get(key)
        if isinstance(size, int) and size > 0:
            return size
    return 0


def _plan(said: Json) -> str:
    plan = _mapping(said.get("plan") or said.get("purchasePlan"))
    parts = [str(plan.get(key) or "") for key in ("publisher", "product", "name")]
    return ":".join(parts) if all(parts) else ""


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}
