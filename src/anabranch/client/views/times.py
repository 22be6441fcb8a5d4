"""Times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(at_ms: int) -> str:
    """A time of the wall clock, in UTC, to the second; in milliseconds where the calendar ends."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
