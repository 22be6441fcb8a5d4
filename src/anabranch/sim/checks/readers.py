"""What must hold of readers that were told that their place is nowhere.

    thrown-out  no reader is told that a committed offset is out of range, or its epoch unknown,
                before the records there may have been deleted: where they expire, each leader
                drops them by itself, also one that was replaced and does not know it

Why: clients start over then, at the beginning or at the end, and groups with them. Losses that a
recorded rule allows void it. Not here: what readers are shown (`anomalies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from anabranch.sim.checks.truth import Truth
    from anabranch.sim.history import Thrown


def check_thrown(event: Thrown, truth: Truth | None) -> None:
    """A reader was told that there is nothing where it stood."""
    if truth is None or truth.forks or truth.losses:
        return
    if max(truth.deleted_to, truth.expired_to) <= event.position <= truth.high:
        raise Violation(
            "thrown-out", "A reader was told that a committed offset is out of range.",
            {"client": event.client, "partition": event.place, "position": event.position,
             "start": truth.start, "high_watermark": truth.high},
        )  # fmt: skip
