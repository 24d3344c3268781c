"""Chance in the simulated region."""

from pathlib import Path

import pytest

from bigfleet_azure._pb import provider_pb2 as pb
from tests.support.process import client, eventually, running

pytestmark = pytest.mark.process


def failures(folder: Path, seed: int) -> set[str]:
    """Which of the same creates fail on a region of its own."""
    folder.mkdir()
    flags = (f"--fake-seed={seed}", "--fake-fail-rate=0.5", "--seed-count=24", "--fake-latency=1ms")
    with running(folder / "log", *flags) as daemon, client(daemon) as speaking:
        ids = sorted(machine.id for machine in speaking.list().machines)
        for machine in ids:
            speaking.create(machine)
        ends = (pb.MACHINE_STATE_IDLE, pb.MACHINE_STATE_FAILED)
        eventually(
            lambda: all(machine.state in ends for machine in speaking.list().machines), "all ended"
        )
        failed = speaking.list(states=[pb.MACHINE_STATE_FAILED]).machines
        return {machine.id for machine in failed}


def test_equal_seeds_have_equal_luck_and_others_do_not(tmp_path: Path) -> None:
    first = failures(tmp_path / "first", seed=3)
    assert 0 < len(first) < 24
    assert failures(tmp_path / "again", seed=3) == first
    assert failures(tmp_path / "other", seed=4) != first
