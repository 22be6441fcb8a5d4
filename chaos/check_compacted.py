"""What a compacted log may lack, and what it may not show.

What: of each key the latest acknowledged record is there, or a later one; a tombstone may be gone,
with all that stood before it. Rule kept: `delete.retention.ms` is what a reader has from its begin
to the end of the log: only an audit that was faster is asked about tombstones. Not here: what
readers were shown on the way (`check.py`); whether replicas agree (`replicas.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from anabranch.sim.checks.violation import Violation
from anabranch.sim.history import OK, Poll, Send
from chaos.history import is_tombstone, key_of
from chaos.topics import TOMBSTONE_MS

Seen = Mapping[bytes, list[int]]
"""A record's name -> every offset at which it was shown."""


def number_of(name: bytes) -> int:
    """The number of a record by its name, -1 for none."""
    number = name.rpartition(b":")[2]
    return int(number) if number.isdigit() else -1


def buried(sends: Iterable[Send], seen: Seen) -> dict[bytes, float]:
    """Key -> up to where a tombstone may have removed its records: one that nobody confirmed or saw
    may stand anywhere."""
    found: dict[bytes, float] = defaultdict(lambda: -1)
    for send in sends:
        n = int(send.id)
        if is_tombstone(send.place.topic, n):
            places = seen.get(send.value, [])
            known = [each for each in (send.offset, *places) if each >= 0]
            at = max(known) if known else inf
            found[key_of(n)] = max(found[key_of(n)], at)
    return found


def resurrected(
    polls: Iterable[Poll], spans: Mapping[str, tuple[int, int]], sends: Iterable[Send]
) -> Iterator[Violation]:
    """Keys that an acknowledged tombstone deleted and that an audit shows all the same. `spans`
    are when each audit began and ended."""
    deleted: dict[bytes, Send] = {}
    for send in sends:
        if is_tombstone(send.place.topic, int(send.id)) and send.outcome == OK:
            key = key_of(int(send.id))
            if send.offset > (deleted[key].offset if key in deleted else -1):
                deleted[key] = send
    for auditor, shown in _by_audit(polls, spans).items():
        for key, offset in shown.items():
            tombstone = deleted.get(key)
            if tombstone is not None and offset < tombstone.offset:
                yield Violation(
                    "resurrected", "A key's record is there; its acknowledged tombstone is not.",
                    {"partition": tombstone.place, "key": key, "offset": offset,
                     "tombstone": tombstone.offset, "record": tombstone.id, "client": auditor},
                )  # fmt: skip


def _by_audit(
    polls: Iterable[Poll], spans: Mapping[str, tuple[int, int]]
) -> dict[str, dict[bytes, int]]:
    """Audit -> key -> the offset of the last record of it, of those that were fast enough."""
    found: dict[str, dict[bytes, int]] = defaultdict(dict)
    for poll in polls:
        name = poll.client.split()[1] if " " in poll.client else poll.client
        began, ended = spans.get(name, (0, TOMBSTONE_MS * 1000))
        if ended - began < TOMBSTONE_MS * 1000:
            for offset, value in poll.records:
                n = number_of(value)
                if n >= 0:
                    key = key_of(n)
                    found[poll.client][key] = max(offset, found[poll.client].get(key, -1))
    return found
