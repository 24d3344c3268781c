"""What the tests of the running daemon share: a log file and a state file of their own."""

from pathlib import Path

import pytest


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where the daemon's lines go."""
    path = tmp_path / "daemon.log"
    path.touch()
    return path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Where a state file may be made."""
    return tmp_path / "state.db"
