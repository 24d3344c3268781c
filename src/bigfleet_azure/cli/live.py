"""What Azure says of an offerings file, asked as the daemon asks it: `offerings check --live`."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.cli.output import fail, note
from bigfleet_azure.daemon.settings import Settings, SettingsError, resolve
from bigfleet_azure.domain.errors import RETRYABLE, BackendError
from bigfleet_azure.domain.offering import Assignment, Offer, assign

if TYPE_CHECKING:
    from bigfleet_azure.backends.azure.backend import AzureBackend


def outlooks(
    file: Path, *, provider: str, location: str, config: Path | None
) -> list[dict[str, Any]]:
    """One row for each offering of the file, with what Azure says of it."""
    settings = _settings(file, provider, location, config)
    try:
        return asyncio.run(_asked(settings, file))
    except BackendError as error:
        code = Exit.UNREACHABLE if error.kind in RETRYABLE else Exit.USAGE
        fail(code, "\n       ".join(str(error).splitlines()))


def _settings(file: Path, provider: str, location: str, config: Path | None) -> Settings:
    flags = [f"--offerings={file}", f"--provider={provider}", "--azure-backend=azure"]
    flags += [f"--location={location}"] if location else []
    flags += [f"--config={config}"] if config else []
    try:
        return resolve(flags, os.environ, lambda path: Path(path).read_bytes())
    except SettingsError as error:
        fail(Exit.USAGE, "\n       ".join(error.faults))


async def _asked(settings: Settings, file: Path) -> list[dict[str, Any]]:
    from bigfleet_azure.backends.azure.backend import AzureBackend
    from bigfleet_azure.daemon.offerings_file import OfferingsError, load
    from bigfleet_azure.kit.clock import SystemClock
    from bigfleet_azure.telemetry.metrics import Metrics

    assert settings.azure is not None
    backend = AzureBackend(settings.azure, clock=SystemClock(), metrics=Metrics(), report=_report)
    try:
        await backend.start()
        offers, warnings = load(file, backend.facts, settings.azure)
        for warning in warnings:
            note(f"Warning: {warning}")
        for offer in offers:
            with suppress(BackendError):  # what cannot be had is told with its row
                backend.facts(offer)
        for trouble in (await backend.refresh()).troubles:
            note(f"Warning: {trouble}")
        await backend.shortages()
        return _rows(backend, offers, settings)
    except OfferingsError as error:
        fail(Exit.USAGE, "\n       ".join(error.faults))
    finally:
        await backend.close()


def _report(name: str, trouble: str | None) -> None:
    if trouble is not None:
        note(f"Warning: {name}: {trouble}")


def _rows(
    backend: "AzureBackend", offers: Sequence[Offer], settings: Settings
) -> list[dict[str, Any]]:
    assigned = assign(offers, (), provider=settings.provider, region=settings.location)
    return [described(each) | _outlook(backend, each.offer) for each in assigned]


_ASKED = (
    "price_usd_per_hour",
    "price_source",
    "interruption_probability",
    "rate_source",
    "quota",
    "quota_leaves",
)


def _outlook(backend: "AzureBackend", offer: Offer) -> dict[str, Any]:
    try:
        found = backend.outlook(offer)
    except BackendError as error:
        return {**dict.fromkeys(_ASKED), "restrictions": [str(error)]}
    level = found.room.level
    return {
        "price_usd_per_hour": found.quote.usd_per_hour,
        "price_source": str(found.quote.source),
        "interruption_probability": found.probability,
        "rate_source": "azure" if found.rate_known else "table",
        "quota": f"{level.name}: {level.used} of {level.limit} used" if level else None,
        "quota_leaves": found.room.machines,
        "restrictions": list(found.faults),
    }


def described(each: Assignment) -> dict[str, Any]:
    """What is shown of an offering whoever is asked."""
    return {
        "first_id": each.first_id,
        "vm_size": each.offer.vm_size,
        "zone": each.offer.zone,
        "capacity_type": each.offer.capacity_type.name,
        "slots": each.offer.count,
    }
