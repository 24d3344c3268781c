"""Values that are right alone and wrong together, and those that are merely odd.

What only concerns the Azure backend is `azure_faults`'.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bigfleet_azure.daemon.options import AZURE_OPTIONS, FAKE_OPTIONS
from bigfleet_azure.domain.lifecycle import Kind


@dataclass(frozen=True, slots=True)
class Given:
    """A value somebody gave: the text, and how to show where it stands."""

    text: str
    shown: str


@dataclass(frozen=True, slots=True)
class Faults:
    """What was found wrong, and the options it leaves without a value to be compared."""

    texts: list[str] = field(default_factory=list)
    options: set[str] = field(default_factory=set)

    def add(self, text: str, option: str = "") -> None:
        self.texts.append(text)
        self.options.add(option)


def find_contradictions(
    values: Mapping[str, Any], given: Mapping[str, Given], faults: Faults
) -> None:
    """Values that are right alone and wrong together; what is faulty already is left out."""
    for names, check in (
        (("azure-backend", "use-fake-backend"), _backend_fault),
        (("tls-cert", "tls-key", "tls-ca"), _tls_fault),
        (("state", "state-key-file", "state-key"), _key_file_fault),
    ):
        fault = "" if faults.options.intersection(names) else check(values, given)
        if fault:
            faults.add(fault)


def _backend_fault(values: Mapping[str, Any], given: Mapping[str, Given]) -> str:
    if values["use_fake_backend"] and values["azure_backend"] == "azure":
        return (
            f"{given['use-fake-backend'].shown} and {given['azure-backend'].shown} contradict "
            "each other; remove one of them"
        )
    return ""


def _tls_fault(values: Mapping[str, Any], given: Mapping[str, Given]) -> str:
    names = ("tls-cert", "tls-key", "tls-ca")
    present = [name for name in names if values[name.replace("-", "_")] is not None]
    missing = [name for name in names[:2] if name not in present]
    if not present or not missing:
        return ""
    return (
        f"{' and '.join(given[name].shown for name in present)} cannot be used without "
        f"{' and '.join(f'--{name}' for name in missing)}; give none of the three for plaintext, "
        "cert and key for TLS, all three for mutual TLS"
    )


def _key_file_fault(values: Mapping[str, Any], given: Mapping[str, Given]) -> str:
    if values["state_key_file"] is None:
        return ""
    shown = given["state-key-file"].shown
    if values["state"] is None:
        return f"{shown} has no use without a state file; add --state=FILE or remove it"
    if values["state_key"] is not None:
        return f"{shown} and {given['state-key'].shown} both name a key; keep one of them"
    return ""


def oddities(values: Mapping[str, Any], given: Mapping[str, Given], azure: bool) -> list[str]:
    """What has no effect beside something else; `azure` says which backend was chosen."""
    warnings = []
    other = [
        given[option.name].shown
        for option in (FAKE_OPTIONS if azure else AZURE_OPTIONS)
        if option.name in given and not given[option.name].shown.startswith(option.env_aliases)
    ]
    if other:
        region = "real machines" if azure else "the simulated region"
        warnings.append(f"without effect on {region}: {', '.join(other)}")
    if values["transition_timeout"] is not None:
        warnings += [
            f"{given[name].shown} has no effect beside {given['transition-timeout'].shown}"
            for name in (f"{kind}-timeout" for kind in Kind)
            if name in given
        ]
    if values["offerings"] is not None:
        warnings += [
            f"{given[name].shown} has no effect beside {given['offerings'].shown}"
            for name in ("seed-count", "zone-a", "zone-b")
            if name in given
        ]
    if values["state_key"] is not None and values["state"] is None:
        warnings.append(f"{given['state-key'].shown} has no use without --state")
    return warnings
