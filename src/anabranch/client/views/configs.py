"""Settings of a topic or a broker: their values, and where each comes from."""

from __future__ import annotations

from typing import Any

SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "server.properties",
    5: "default",
}
"""DescribeConfigs' numbers in words."""


def setting_view(entry: Any, *, documentation: bool = False) -> dict[str, Any]:
    """One setting as DescribeConfigs told it; a password has no value."""
    said = {
        "name": entry.name,
        "value": entry.value,
        "source": SOURCES.get(entry.config_source, str(entry.config_source)),
        "read_only": entry.read_only,
        "sensitive": entry.is_sensitive,
    }
    return said | ({"documentation": entry.documentation} if documentation else {})
