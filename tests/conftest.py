"""Settings of the whole suite."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("suite", deadline=None)  # a busy machine is no fault of what is tested
settings.load_profile("suite")
