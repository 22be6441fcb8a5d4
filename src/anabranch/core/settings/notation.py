"""The words that the setting tables are written in."""

from __future__ import annotations

from anabranch.core.settings.setting import Importance, Mark, Scope, Type, row

BOOLEAN, STRING, INT, SHORT = Type.BOOLEAN, Type.STRING, Type.INT, Type.SHORT
LONG, DOUBLE, LIST, CLASS, PASSWORD = Type.LONG, Type.DOUBLE, Type.LIST, Type.CLASS, Type.PASSWORD
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
PER_BROKER, CLUSTER_WIDE = Scope.PER_BROKER, Scope.CLUSTER_WIDE
IN_FORCE, INTERNAL, REQUIRED = Mark.IN_FORCE, Mark.INTERNAL, Mark.REQUIRED
OURS = Mark.OURS
INT_MAX = "2147483647"
LONG_MAX = "9223372036854775807"

__all__ = [
    "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD",
    "HIGH", "MEDIUM", "LOW", "PER_BROKER", "CLUSTER_WIDE",
    "IN_FORCE", "INTERNAL", "REQUIRED", "OURS", "INT_MAX", "LONG_MAX", "row",
]  # fmt: skip
