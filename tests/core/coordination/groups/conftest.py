"""Groups are tested through the handlers, on the in-memory node of the API's tests."""

from __future__ import annotations

import pytest
from tests.core.coordination.groups.group_world import GroupWorld


@pytest.fixture
def world():
    """A broker that coordinates every group, with no delay for first members."""
    return GroupWorld()
