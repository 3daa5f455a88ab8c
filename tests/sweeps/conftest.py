"""Sweeps start processes that import the jobs of ``tests.sweeps.jobs``."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _jobs_can_be_imported(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
