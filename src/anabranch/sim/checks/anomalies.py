"""The anomalies of Jepsen's Kafka tests, over the whole history of the clients, at the end.

    inconsistent-offsets   one offset, two values
    duplicate              one value of an idempotent producer at two offsets
    lost-write             acknowledged under acks=all, below what was seen, and never seen
    unseen                 acknowledged under acks=all, and not there when all was read at the end
    G1a                    a value was seen whose write surely failed
    phantom                a value was seen that nobody wrote
    poll-skip              a reader was not shown a record between two that it was shown
    nonmonotonic-poll      a reader was shown an older record after a newer one
    nonmonotonic-send      a producer's records stand in another order than it sent them

A loss that a recorded rule allows (`truth.forks`) makes the offsets from its place on two
histories: what differs only by that is counted under the rule's name and not raised. Offsets may
have gaps where no record was, or where compaction took it: a tombstone, or a record with a newer
one of its key, even if that one was lost after the gap was seen. Source: jepsen.tests.kafka (the
names). Not here: transactions (`transactions.py`); order across rebalances, which no group
promises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.partition.protocol import ACKS_ALL
from anabranch.core.types import ZERO_TOPIC_ID, TopicId, TopicPartition
from anabranch.sim.checks.violation import Violation
from anabranch.sim.history import FAILED, OK, is_tombstone

if TYPE_CHECKING:
    from anabranch.sim.checks.logs import LogChecks
    from anabranch.sim.history import History, Poll, Send

AUDITOR = "auditor"
NOT_REPLICATED = "acks=1: the leader was gone before it was copied"
Value = bytes
Where = tuple[TopicPartition, TopicId]
"""A partition by name, and which of the topics of that name; zeros where that was not known."""


def stop_at(violation: Violation) -> None:
    """The first anomaly ends the judgement."""
    raise violation


class Anomalies:
    """One judgement. `allowed` counts what a rule allows, by rule; `report` is told each anomaly,
    and the judgement goes on when it returns."""

    def __init__(
        self, history: History, logs: LogChecks, report: Callable[[Violation], None] = stop_at
    ) -> None:
        self.history = history
        self.logs = logs
        self.report = report
        self.allowed: Counter[str] = Counter()
        self.seen: dict[Where, dict[int, Value]] = {}
        """What was seen at each offset, the last time."""
        self.offsets: dict[tuple[Where, Value], list[int]] = {}
        """Every offset at which a value was seen."""
        self.last: dict[Where, dict[int, Value]] = {}
        """What the reader at the end saw."""
        self._sent: dict[Value, Send] = {}
        self._newest: dict[tuple[Where, bytes], int] = {}
        """Where a compacted topic's key was seen last."""

    def check(self) -> None:
        """Report every anomaly."""
        for poll in self.history.polls:
            self._read(poll)
        by_value = self._sent = {send.value: send for send in self.history.sends}
        self._find_newest(by_value)
        self._check_values(by_value)
        for send in self.history.sends:
            if send.outcome == OK:
                self._check_acknowledged(send)
        self._check_order_of_polls()
        self._check_order_of_sends()

    def _find_newest(self, by_value: dict[Value, Send]) -> None:
        for (where, value), offsets in self.offsets.items():
            send = by_value.get(value)
            if send is not None and send.key is not None:
                spot = (where, send.key)
                self._newest[spot] = max(self._newest.get(spot, -1), *offsets)

    def _is_compacted_away(self, where: Where, send: Send | None, offset: int) -> bool:
        """Whether compaction may have taken a record: a tombstone, or one with a newer record of
        its key."""
        if send is None or send.key is None or not self.logs.was_compacted(*where):
            return False
        return is_tombstone(send) or self._newest.get((where, send.key), -1) > offset

    def _was_superseded(self, where: Where, send: Send | None, offset: int, by_us: int) -> bool:
        """Whether compaction may have taken a record in favour of one that was lost later."""
        truth = self.logs.truth_of(*where)
        if send is None or send.key is None or truth is None or not truth.forks:
            return False
        return any(
            each.key == send.key
            and _is_of(each, where)
            and each.invoked_us <= by_us
            and (each.offset > offset or (each.offset < 0 and each.outcome != FAILED))
            for each in self.history.sends
        )

    def _loss(self, where: Where, offset: int) -> str:
        """The rule by which the record at an offset may be another one than it was."""
        truth = self.logs.truth_of(*where)
        for first, rule in truth.forks if truth is not None else ():
            if first <= offset:
                return rule
        return ""

    def _start(self, where: Where) -> int:
        truth = self.logs.truth_of(*where)
        return 0 if truth is None else truth.deleted_to

    # What was seen.

    def _read(self, poll: Poll) -> None:
        where = (poll.place, poll.topic_id)
        seen = self.seen.setdefault(where, {})
        last = self.last.setdefault(where, {}) if poll.client.startswith(AUDITOR) else None
        for offset, value in poll.records:
            before = seen.get(offset)
            if before is None or before != value:
                if before is not None and not self._loss(where, offset):
                    self.report(Violation(
                        "inconsistent-offsets", "Two values were seen at one offset.",
                        {"partition": poll.place, "offset": offset, "values": (before, value),
                         "client": poll.client},
                    ))  # fmt: skip
                seen[offset] = value
                self.offsets.setdefault((where, value), []).append(offset)
            if last is not None:
                last[offset] = value

    def _check_values(self, by_value: dict[Value, Send]) -> None:
        for (where, value), offsets in self.offsets.items():
            send = by_value.get(value)
            if send is None or not _is_of(send, where):
                self.report(Violation(
                    "phantom", "A value was seen that nobody wrote there.",
                    {"partition": where[0], "value": value, "offset": offsets[0]},
                ))  # fmt: skip
                continue
            if send.outcome == FAILED:
                self.report(Violation(
                    "G1a", "A value was seen whose write failed.",
                    {"partition": where[0], "record": send.id, "offset": offsets[0]},
                ))  # fmt: skip
            if len(set(offsets)) > 1 and send.idempotent:
                rule = self._loss(where, max(offsets))
                if not rule and min(offsets) >= self._start(where):
                    self.report(Violation(
                        "duplicate", "A value stands at two offsets.",
                        {"partition": where[0], "record": send.id, "offsets": sorted(set(offsets))},
                    ))  # fmt: skip

    # What was acknowledged.

    def _check_acknowledged(self, send: Send) -> None:
        place, offset = send.place, send.offset
        where = (place, send.topic_id)
        found = self.offsets.get((where, send.value))
        if found is not None and offset >= 0 and offset not in found and send.idempotent:
            if not self._loss(where, min(offset, *found)):
                self.report(Violation(
                    "inconsistent-offsets", "A record was seen elsewhere than its producer heard.",
                    {"partition": place, "record": send.id, "told": offset, "seen": found},
                ))  # fmt: skip
        last = self.last.get(where)
        if last is None or send.acks == 0:
            return
        if found is not None and any(last.get(each) == send.value for each in found):
            return
        start = self._start(where)
        if offset < start and (offset >= 0 or start > 0):
            return  # deleted, or perhaps so
        if self._is_compacted_away(where, send, max(offset, *found or (-1,))):
            return
        rule = self._loss(where, offset if offset >= 0 else max(last, default=0))
        if not rule and send.acks != ACKS_ALL:
            rule = NOT_REPLICATED
            self.logs.marks.hit("acked-on-few")
        if rule:
            self.allowed[f"acknowledged: {rule}"] += 1
            return
        below = offset >= 0 and offset <= max(self.seen.get(where, {}), default=-1)
        self.report(
            Violation(
                "lost-write" if below else "unseen",
                "A record was acknowledged under acks=all and is not there at the end.",
                {"partition": place, "record": send.id, "offset": offset, "seen_before": found},
            )
        )

    # Order.

    def _check_order_of_polls(self) -> None:
        ends: dict[tuple[str, Where], int] = {}
        for poll in self.history.polls:
            offsets = [offset for offset, _ in poll.records]
            told = {"client": poll.client, "partition": poll.place, "position": poll.position}
            if offsets != sorted(set(offsets)) or (offsets and offsets[0] < poll.position):
                self.report(
                    Violation(
                        "nonmonotonic-poll", "An answer goes back.", {**told, "offsets": offsets}
                    )
                )
            reader = (poll.client, (poll.place, poll.topic_id))
            before = ends.get(reader)
            if before is not None and poll.position < before and not poll.in_group:
                self.report(
                    Violation(
                        "nonmonotonic-poll", "A reader went back.", {**told, "before": before}
                    )
                )
            if offsets:
                self._check_gaps(poll, offsets, before)
                ends[reader] = offsets[-1] + 1

    def _check_gaps(self, poll: Poll, offsets: list[int], before: int | None) -> None:
        """Between the first and the last that a reader is shown is nothing that others see."""
        first = poll.position if before is None or poll.in_group else before
        where = (poll.place, poll.topic_id)
        last = self.last.get(where, {})
        shown = set(offsets)
        for offset in range(max(first, self._start(where)), offsets[-1]):
            if offset in shown or offset not in last or self._loss(where, offset):
                continue
            send = self._sent.get(last[offset])
            if self._is_compacted_away(where, send, offset):
                continue
            if not self._was_superseded(where, send, offset, poll.at_us):
                self.report(Violation(
                    "poll-skip", "A reader was not shown a record.",
                    {"client": poll.client, "partition": poll.place, "offset": offset,
                     "position": poll.position, "shown": offsets},
                ))  # fmt: skip

    def _check_order_of_sends(self) -> None:
        newest: dict[tuple[str, Where], Send] = {}
        for send in self.history.sends:
            if not send.idempotent or send.outcome != OK or send.offset < 0:
                continue
            where = (send.place, send.topic_id)
            key = (send.client, where)
            before = newest.get(key)
            if before is not None and send.offset <= before.offset:
                if not self._loss(where, before.offset):
                    self.report(Violation(
                        "nonmonotonic-send", "A later record stands before an earlier one.",
                        {"partition": send.place, "earlier": before.id, "at": before.offset,
                         "later": send.id, "later_at": send.offset},
                    ))  # fmt: skip
            newest[key] = send


def _is_of(send: Send, where: Where) -> bool:
    """Whether a record was for that partition of that topic, as far as both know which it is."""
    place, topic_id = where
    return send.place == place and (
        topic_id == send.topic_id or ZERO_TOPIC_ID in (topic_id, send.topic_id)
    )
