"""A PUT on a VM that is there: what it may change, and what it is refused for."""

from typing import Any

from tests.support.arm.vms import Vm
from tests.support.arm.wire import Json, Refusal, refusal

_KEPT_WHEN_ABSENT = ("customData", "adminPassword")


def check_changes(vm: Vm, body: Json) -> None:
    """What a PUT may not change. What is never echoed may be left out."""
    if (body.get("zones") or []) != (vm.top.get("zones") or []):
        raise _unchangeable("zones")
    sent = body["properties"]
    _compare_profile(vm.os_profile, sent.get("osProfile") or {})
    before, after = vm.sent["storageProfile"], sent["storageProfile"]
    if _image(before) != _image(after):
        raise _unchangeable("imageReference")
    for key in ("priority", "availabilitySet"):
        if sent.get(key) != vm.sent.get(key):
            raise _unchangeable(key)


def _compare_profile(before: Json, after: Json) -> None:
    for key in dict.fromkeys([*before, *after]):
        if key in _KEPT_WHEN_ABSENT and key not in after:
            continue
        if key in after and before.get(key) != after[key] and _plain(key, before, after):
            target = key if key in {"customData", "computerName"} else f"osProfile.{key}"
            raise _unchangeable(target)


def _plain(key: str, before: Json, after: Json) -> bool:
    """Whether a difference counts: an answer sent back has defaults that the first PUT lacked."""
    if key in before:
        if isinstance(before[key], dict) and isinstance(after[key], dict):
            return any(
                inner in after[key] and after[key][inner] != value
                for inner, value in before[key].items()
            )
        return True
    return key not in {"secrets", "allowExtensionOperations", "requireGuestProvisionSignal"} and (
        key != "linuxConfiguration"
    )


def _image(profile: Json) -> Any:
    reference = dict(profile.get("imageReference") or {})
    reference.pop("exactVersion", None)
    return {key: str(value).lower() for key, value in reference.items()}


def _unchangeable(target: str) -> Refusal:
    return refusal(
        409,
        "PropertyChangeNotAllowed",
        f"Changing property '{target}' is not allowed.",
        target=target,
    )


def merge(vm: Vm, properties: Json) -> None:
    """Take what may change; network and secrets stay as they were made."""
    kept = {"networkProfile", "osProfile", "storageProfile"}
    vm.sent |= {key: value for key, value in properties.items() if key not in kept}
