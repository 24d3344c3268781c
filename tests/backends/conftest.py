"""The backends that the contract suite runs on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.backends.harness import AzureHarness, Harness, SimulatedHarness


@pytest.fixture(params=["simulated", "instrumented", "azure"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    if request.param == "azure":
        azure = AzureHarness()
        await azure.start()
        yield azure
        await azure.close()
        return
    made = SimulatedHarness(tmp_path / "state.region", instrumented=request.param == "instrumented")
    await made.backend.start()
    yield made
    await made.backend.close()
