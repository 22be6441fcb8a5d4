import pytest
from tests.core.api.in_memory_node import InMemoryNode


@pytest.fixture
def node():
    return InMemoryNode()
