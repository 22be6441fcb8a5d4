"""The modules of the benchmark, which are scripts of one folder."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def module(monkeypatch):
    """A module of bench/ by its name."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module
