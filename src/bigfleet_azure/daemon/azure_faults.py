"""What is wrong with the settings of the Azure backend, one check for each way they can be.

Imported only when that backend is chosen. What the settings come to is `azure`'s; whether Azure
agrees with them (the group exists, the subnet can be joined) is asked by the backend itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bigfleet_azure.backends.azure.credentials import chosen_method
from bigfleet_azure.backends.azure.images import plan_of, reference_of
from bigfleet_azure.backends.azure.options import (
    BootstrapMethod,
    Credentials,
    GuestMethod,
    VmProfile,
)
from bigfleet_azure.backends.azure.profiles import contradictions
from bigfleet_azure.daemon import azure_values
from bigfleet_azure.daemon.contradictions import Faults, Given
from bigfleet_azure.daemon.settings import Read
from bigfleet_azure.domain.offering import built_in_mix

_Content = TypeVar("_Content")

REQUIRED = ("location", "subscription-id", "resource-group", "subnet-id")

_NEEDED_CREDENTIALS = {
    "workload-identity": ("tenant-id", "client-id", "federated-token-file"),
    "service-principal": ("tenant-id", "client-id", "client-secret"),
}

_GUEST = ("bootstrap-method", "readiness", "drain-method", "kubeconfig-dir", "cluster-id")

_VARIABLES = {
    "subscription-id": "AZURE_SUBSCRIPTION_ID",
    "tenant-id": "AZURE_TENANT_ID",
    "client-id": "AZURE_CLIENT_ID",
    "client-secret": "AZURE_CLIENT_SECRET",
    "federated-token-file": "AZURE_FEDERATED_TOKEN_FILE",
}
"""What a missing setting is asked for as, where it is usually a variable."""

_TEXTS: Mapping[str, Callable[[str], object]] = {
    "subscription-id": azure_values.guid,
    "tenant-id": azure_values.tenant,
    "client-id": azure_values.guid,
    "authority-host": azure_values.https_url,
}
"""Settings that were read as plain text, and the readers that judge them."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The settings while they are judged.

    Attributes:
        values: by field; those of faulty options are their defaults.
        given: what the operator gave, by option.
        read: opens files.
        faults: what was found so far.
    """

    values: dict[str, Any]
    given: Mapping[str, Given]
    read: Read
    faults: Faults

    def __getitem__(self, name: str) -> Any:
        return self.values[name.replace("-", "_")]

    def shown(self, name: str) -> str:
        """How to speak of a setting: as it was given, else as it is by default."""
        return self.given[name].shown if name in self.given else f"--{name}={self[name]}"

    def judge_texts(self) -> None:
        """Read what was taken as plain text so far."""
        for name, reader in _TEXTS.items():
            try:
                self.values[name.replace("-", "_")] = reader(self[name])
            except ValueError as error:
                self.faults.add(f"{self.shown(name)} {error}", name)
        for name, check in (("image", reference_of), ("plan", plan_of)):
            try:
                if self[name] or name == "image":
                    check(self[name])
            except ValueError as error:
                self.faults.add(f"{self.shown(name)}: {error}", name)

    def content(self, name: str, judge: Callable[[bytes], _Content], absent: _Content) -> _Content:
        """What `judge` makes of the file that a setting names; `absent` when there is none."""
        path: Path | None = self[name]
        if path is None:
            return absent
        try:
            return judge(self.read(str(path)))
        except OSError as error:
            fault = f"cannot be read: {error.strerror or error}"
        except ValueError as error:
            fault = str(error)
        self.faults.add(f"{self.shown(name)} {fault}", name)
        return absent

    def credentials(self) -> Credentials:
        """Who we are to Azure."""
        return Credentials(
            method=self["credential"],
            tenant_id=self["tenant-id"],
            client_id=self["client-id"],
            client_secret=self["client-secret"],
            token_file=self["federated-token-file"],
            authority=self["authority-host"],
        )


def found(settings: Judged) -> list[str]:
    """Everything that is wrong between settings that are right alone."""
    faults = [*_missing(settings), *_fake_faults(settings)]
    if not settings.faults.options.intersection(("credential", "tenant-id", "client-id")):
        faults += _credential_faults(settings)
    if not settings.faults.options.intersection(_GUEST):
        faults += _guest_faults(settings)
    return faults


def _missing(settings: Judged) -> Iterator[str]:
    faulty = settings.faults.options
    lacking = [name for name in REQUIRED if not settings[name] and name not in faulty]
    if not lacking:
        return
    if settings["azure-backend"] == "azure":
        chosen = f"{settings.shown('azure-backend')} needs"
    else:
        chosen = f"{settings.shown('location')} selects the azure backend, which needs"
    yield (
        f"{chosen} {_all_of(map(_asked_for, lacking))}; add what is missing, or use "
        "--use-fake-backend for the simulated region"
    )


def _asked_for(name: str) -> str:
    variable = _VARIABLES.get(name)
    if name == "client-secret":
        return f"the variable {variable}"
    return f"--{name} (or {variable})" if variable else f"--{name}"


def _all_of(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _fake_faults(settings: Judged) -> Iterator[str]:
    if settings["fake-faults"]:
        yield f"{settings.shown('fake-faults')} is for the simulated region only; remove it"


def _credential_faults(settings: Judged) -> Iterator[str]:
    method = chosen_method(settings.credentials())
    lacking = [name for name in _NEEDED_CREDENTIALS.get(method, ()) if not settings[name]]
    if not lacking:
        return
    why = settings.shown("credential")
    if settings["credential"] == "auto":
        sign = "federated-token-file" if method == "workload-identity" else "client-secret"
        why = f"{settings.shown(sign)} selects {method}, which"
    yield f"{why} needs {_all_of(map(_asked_for, lacking))}"


def _guest_faults(settings: Judged) -> Iterator[str]:
    """What bootstrap, readiness and drain need of each other."""
    kubernetes = [
        settings.shown(name)
        for name in ("readiness", "drain-method")
        if settings[name] == GuestMethod.KUBERNETES
    ]
    if settings["bootstrap-method"] == BootstrapMethod.NONE:
        wanted = [
            f"--{name}=kubernetes"
            for name in ("readiness", "drain-method")
            if settings[name] != GuestMethod.KUBERNETES
        ]
        wanted += [f"--{name}" for name in ("cluster-id", "kubeconfig-dir") if not settings[name]]
        if wanted:
            yield f"{settings.shown('bootstrap-method')} needs {_all_of(wanted)}"
        return
    if kubernetes and settings["kubeconfig-dir"] is None:
        yield f"{_all_of(kubernetes)} cannot work without --kubeconfig-dir"
    if settings["cluster-id"]:
        yield (
            f"{settings.shown('cluster-id')} has a use only with --bootstrap-method=none: else a "
            "machine joins the cluster that it is told; remove it"
        )


def mix_faults(settings: Judged, profile: VmProfile) -> Iterator[str]:
    """What speaks against the built-in mix, when that is what is offered."""
    faulty = settings.faults.options.intersection(("location", "zone-a", "zone-b"))
    if settings["offerings"] is not None or not settings["location"] or faulty:
        return
    faults: dict[str, None] = {}
    for offer in built_in_mix(settings["seed-count"], (settings["zone-a"], settings["zone-b"])):
        faults |= dict.fromkeys(contradictions(offer, profile, settings["location"]))
    for fault in faults:
        yield f"the built-in mix, which is offered without --offerings: {fault}"
