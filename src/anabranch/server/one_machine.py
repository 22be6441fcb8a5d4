"""Diskless topics for a cluster on one machine: what `up` and tests give their nodes."""

from __future__ import annotations

import os

OBJECTS, COORDINATOR = "diskless-objects", "diskless.db"


def diskless_settings(folder: str) -> dict[str, str]:
    """Settings that keep diskless records in `folder`, in which a folder for objects is made."""
    path = os.path.abspath(folder)
    os.makedirs(os.path.join(path, OBJECTS), exist_ok=True)
    return {
        "diskless.storage.system.enable": "true",
        "diskless.storage.url": f"file://{path}/{OBJECTS}",
        "diskless.coordinator.url": f"sqlite://{path}/{COORDINATOR}",
    }
