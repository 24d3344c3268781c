"""An offering's own settings: how its machines differ from the others, and what cannot go together.

`daemon` reads and checks the offerings file; the names here are its keys. What a profile comes to
for a size and an image is `fitting`'s.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bigfleet_azure.backends.azure.fitting import zone_of
from bigfleet_azure.backends.azure.options import Choice, VmProfile
from bigfleet_azure.backends.azure.tags import MAX_USER_CHARACTERS, MAX_USER_TAGS
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer

MAX_USER_DATA_BYTES = 65_535
"""Largest customData, before base64 (azure-facts section 4.3)."""

USER_DATA_KEY = "base_user_data"

MACHINE_ID = b"__BIGFLEET_MACHINE_ID__"
CALLBACK_URL = b"__BIGFLEET_CALLBACK_URL__"
CALLBACK_TOKEN = b"__BIGFLEET_CALLBACK_TOKEN__"

_PLACEHOLDERS = {
    MACHINE_ID: "",
    CALLBACK_URL: "give --callback-url",
    CALLBACK_TOKEN: "give --callback-key-file",
}
"""What user data may contain, to be replaced for each machine, and what the value comes from."""

_FIELDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "image": ("image", str),
    "plan": ("plan", str),
    "admin_username": ("admin_username", str),
    "ssh_public_key": ("ssh_public_key", str),
    "os_disk_gib": ("os_disk_gib", int),
    "os_disk_type": ("os_disk_type", str),
    "ephemeral_os_disk": ("ephemeral_os_disk", Choice),
    "security_type": ("security_type", str),
    "disk_controller": ("disk_controller", str),
    "accelerated_networking": ("accelerated_networking", Choice),
    "subnet_id": ("subnet_id", str),
    "nsg_id": ("nsg_id", str),
    "asg_ids": ("asg_ids", tuple),
    "lb_backend_pool_ids": ("lb_pool_ids", tuple),
    "public_ip": ("public_ip", bool),
    "ip_forwarding": ("ip_forwarding", bool),
    "availability_set_id": ("availability_set_id", str),
    "azure_zone": ("azure_zone", str),
    "identity_ids": ("identity_ids", tuple),
    "spot_eviction_policy": ("eviction_policy", str),
    "spot_max_price": ("max_price", float),
    "capacity_reservation_group_id": ("capacity_reservation_group_id", str),
    "encryption_at_host": ("encryption_at_host", bool),
    "disk_encryption_set_id": ("disk_encryption_set_id", str),
    "boot_diagnostics": ("boot_diagnostics", bool),
}
"""Keys of `Offer.settings` that take the place of one field, and how JSON becomes its value."""

OFFERING_KEYS = (*_FIELDS, USER_DATA_KEY, "tags")
"""All keys of `Offer.settings`."""


def profile_of(defaults: VmProfile, offer: Offer) -> VmProfile:
    """How the VMs of `offer` look: `defaults`, changed by what the offering itself says."""
    settings = offer.settings
    if not settings:
        return defaults
    changed = {
        name: read(settings[key]) for key, (name, read) in _FIELDS.items() if key in settings
    }
    if "tags" in settings:
        changed["tags"] = _merged(defaults.tags, settings["tags"])
    if USER_DATA_KEY in settings:
        path = settings[USER_DATA_KEY]
        changed |= {"base_user_data": b"", "base_user_data_file": Path(path) if path else None}
    return replace(defaults, **changed)


def _merged(defaults: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """All tags; of two whose names differ in case only, the offering's."""
    names = {key.lower() for key in own}
    return {key: value for key, value in defaults.items() if key.lower() not in names} | dict(own)


def with_user_data(profile: VmProfile) -> VmProfile:
    """The profile with the content of its user data file, read now.

    Raises:
        BackendError: TRANSIENT, it cannot be read or is too large; the file may be mended.
    """
    path = profile.base_user_data_file
    if path is None:
        return profile
    try:
        return replace(profile, base_user_data=user_data(path.read_bytes()))
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except ValueError as error:
        fault = str(error)
    raise _unusable(f"the user data file {path} {fault}")


def filled(profile: VmProfile, values: Mapping[bytes, str]) -> VmProfile:
    """The profile with the values of one machine where its user data has their placeholders.

    User data without placeholders stays byte for byte.

    Raises:
        BackendError: TRANSIENT, a value is asked for that there is none of, or it got too large.
    """
    content = profile.base_user_data
    for placeholder, value in values.items():
        if placeholder not in content:
            continue
        if not value:
            raise _unusable(
                f"the user data asks for {placeholder.decode()}; {_PLACEHOLDERS[placeholder]}"
            )
        content = content.replace(placeholder, value.encode())
    if content is profile.base_user_data:
        return profile
    try:
        return replace(profile, base_user_data=user_data(content))
    except ValueError as error:
        raise _unusable(f"the user data {error}, once its placeholders are filled in") from error


def placeholder_faults(content: bytes, *, url: bool, token: bool) -> Iterator[str]:
    """Why user data cannot be filled in; each the rest of a sentence that begins with its file."""
    for placeholder, there in ((CALLBACK_URL, url), (CALLBACK_TOKEN, token)):
        if placeholder in content and not there:
            yield f"asks for {placeholder.decode()}; {_PLACEHOLDERS[placeholder]}"


def _unusable(text: str) -> BackendError:
    return BackendError(
        FailureKind.TRANSIENT,
        f"{text}; the machine is made once that is mended",
        code="UserData",
    )


def user_data(content: bytes) -> bytes:
    """The content of a user data file, which Azure takes.

    Raises:
        ValueError: it is too large; the rest of a sentence.
    """
    if len(content) > MAX_USER_DATA_BYTES:
        raise ValueError(
            f"has {len(content)} bytes; the most that Azure takes is {MAX_USER_DATA_BYTES}"
        )
    return content


def contradictions(offer: Offer, profile: VmProfile, location: str) -> Iterator[str]:
    """What cannot go together whatever size and image are, each with what to change."""
    spot = offer.capacity_type is CapacityType.SPOT
    try:
        zone = zone_of(offer, profile, location)
    except ValueError as error:
        zone = None
        yield str(error)
    if profile.availability_set_id and spot:
        yield (
            "a Spot machine cannot be in an availability set; "
            'set availability_set_id to "", or offer it on demand'
        )
    if profile.availability_set_id and zone:
        yield (
            f"a machine cannot be in zone {zone} and in an availability set; "
            'set azure_zone to none, or availability_set_id to ""'
        )
    if spot and profile.ephemeral_os_disk is Choice.ON and profile.eviction_policy == "Deallocate":
        yield (
            "an ephemeral OS disk does not survive a deallocation; "
            "set ephemeral_os_disk to auto, or spot_eviction_policy to Delete"
        )
    yield from _idle_keys(offer)
    if "tags" in offer.settings:
        yield from tag_faults(profile.tags)


def _idle_keys(offer: Offer) -> Iterator[str]:
    """Keys of an offering that mean nothing for its capacity type."""
    for key, capacity in (
        ("capacity_reservation_group_id", CapacityType.RESERVED),
        ("spot_eviction_policy", CapacityType.SPOT),
        ("spot_max_price", CapacityType.SPOT),
    ):
        if offer.settings.get(key) and offer.capacity_type is not capacity:
            yield f"{key} is for capacity_type {capacity.tag} only; remove it"


def tag_faults(tags: Mapping[str, str]) -> Iterator[str]:
    """Why the operator's tags leave no room for the daemon's own."""
    text = "".join((*tags.keys(), *tags.values()))
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2
    if len(tags) > MAX_USER_TAGS:
        yield (
            f"there are {len(tags)} tags; beside the daemon's own there is room for {MAX_USER_TAGS}"
        )
    if units > MAX_USER_CHARACTERS:
        yield (
            f"the tags have {units} characters in all; beside the daemon's own there is room for "
            f"{MAX_USER_CHARACTERS}"
        )
