"""Which substrate the settings come to, and where it reports standing trouble."""

import subprocess
import sys
from typing import Any

import pytest

from bigfleet_azure.backends.azure import backend as azure_backend
from bigfleet_azure.daemon.assembly import make_backend
from bigfleet_azure.daemon.callbacks import CallbackKeys
from bigfleet_azure.kit.clock import SystemClock
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.telemetry.metrics import Metrics
from tests.daemon_settings.azure import resolved


class Recording:
    """Stands for the Azure backend: keeps what it was made with."""

    def __init__(self, options: Any, **given: Any) -> None:
        self.options = options
        self.given = given


def test_azures_backend_gets_the_options_and_reports_conditions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(azure_backend, "AzureBackend", Recording)
    clock, metrics = SystemClock(), Metrics()
    conditions = Conditions(clock, metrics)
    settings = resolved()
    keys = CallbackKeys(None, lambda _: None)
    made: Any = make_backend(settings, clock, metrics, conditions, keys)
    assert made.options == settings.azure
    assert (made.given["clock"], made.given["metrics"]) == (clock, metrics)
    report = made.given["report"]
    report("credential", "no token")
    assert [(each.name, each.message) for each in conditions.standing()] == [
        ("credential", "no token")
    ]
    report("credential", None)
    assert conditions.standing() == []


def test_the_simulated_region_is_made_without_a_look_at_azure() -> None:
    code = """
import sys
from bigfleet_azure.daemon.app import Daemon
from bigfleet_azure.daemon.assembly import make_backend
from bigfleet_azure.daemon.callbacks import CallbackKeys
from bigfleet_azure.daemon.settings import resolve
from bigfleet_azure.kit.clock import SystemClock
from bigfleet_azure.service.conditions import Conditions
from bigfleet_azure.telemetry.metrics import Metrics
clock, metrics = SystemClock(), Metrics()
settings = resolve(["--use-fake-backend", "--location=eastus", "--os-disk-gib=64"], {}, str.encode)
keys = CallbackKeys(None, print)
backend = make_backend(settings, clock, metrics, Conditions(clock, metrics), keys)
loaded = [name for name in sys.modules if name.startswith(("azure", "bigfleet_azure.backends.azure",
    "bigfleet_azure.daemon.azure_faults", "bigfleet_azure.daemon.azure_files", "cryptography"))]
print(backend.name, *loaded)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["simulated"]
