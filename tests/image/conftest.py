"""The image, built once for all its tests, and figures about it at the end of the run."""

import platform
from collections.abc import Callable, Iterator

import pytest

from tests.support import image as images

FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[images.Image]:
    """The built image."""
    images.require_builder()
    with images.built(tmp_path_factory.mktemp("image")) as found:
        yield found


@pytest.fixture
def figure(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Puts a line into the summary of the run."""
    return pytestconfig.stash.setdefault(FIGURES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures, if there are any."""
    for line in terminalreporter.config.stash.get(FIGURES, []):
        terminalreporter.write_line(f"image ({platform.machine()}): {line}")
