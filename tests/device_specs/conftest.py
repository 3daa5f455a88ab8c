"""No test here sees the data sheets that whoever runs it keeps for devices of their own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_own_sheets(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ROOFLINES_CONFIG_DIR", str(tmp_path_factory.getbasetemp() / "no-own-sheets"))
