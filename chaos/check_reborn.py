"""A topic that was deleted and made again: the old one's records are gone, the new one's are not.

What: the last deletion of a topic divides what producers were told. What was acknowledged before it
was asked for is of a former topic, and may not be in the log. What was sent after every broker knew
the new one, and acknowledged, must be there. In between a record may be in either: clients name
topics, not their ids. Rule kept: only what the audits read is judged, since all before may be of a
former topic. Not here: offsets of groups (`check_kept.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from anabranch.sim.checks.anomalies import AUDITOR
from anabranch.sim.checks.violation import Violation
from anabranch.sim.history import OK, OPEN, Poll, Send

Line = Mapping[str, Any]
READERS = {"poll", "assigned", "commit", "thrown", "stood", "start"}


def is_of_the_audits(line: Line) -> bool:
    """Whether a line tells of the topic that is there at the end, whoever wrote it."""
    return line["op"] not in READERS or line["client"].startswith(AUDITOR)


def risen(sends: Iterable[Send], polls: Iterable[Poll], last: Line) -> Iterator[Violation]:
    """Records of a former topic that the last one shows."""
    former = {
        send.value: send
        for send in sends
        if send.outcome == OK and send.completed_us < last["asked"]
    }
    told: set[bytes] = set()
    for poll in polls:
        for offset, value in poll.records:
            send = former.get(value)
            if send is not None and value not in told:
                told.add(value)
                yield Violation(
                    "risen", "A record of a deleted topic is in the next topic of that name.",
                    {"partition": send.place, "record": send.id, "offset": offset,
                     "acknowledged": send.completed_us, "deletion": last["asked"]},
                )  # fmt: skip


def forget_former(sends: Sequence[Send], last: Line) -> set[bytes]:
    """Leave what was sent before all brokers knew the new topic without an outcome.

    Returns the records whose order and number promise nothing: a producer that lived then raises
    its epoch when it finds a gap, also later, and writes again what it has under way."""
    lived = {send.client for send in sends if send.invoked_us < last["t"]}
    found = set()
    for send in sends:
        if send.invoked_us < last["t"]:
            send.outcome, send.offset = OPEN, -1
        if send.client in lived:
            send.idempotent = False
            found.add(send.value)
    return found
