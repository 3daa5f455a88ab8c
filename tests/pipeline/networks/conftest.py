"""The recordings that the tests of real networks share."""

import os

import pytest

from tests.pipeline.networks.recordings import Recordings


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    """Networks recorded once for all processes of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "networks"
    folder.mkdir(exist_ok=True)
    return Recordings(folder)
