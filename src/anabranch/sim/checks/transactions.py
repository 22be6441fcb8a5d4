"""What must hold of transactions, as their clients saw it.

    aborted-read   nobody who reads what is committed is shown a record whose transaction was not
                   even asked to commit by then, or was aborted (G1a, G1b; G1c follows: what a
                   transaction read was decided before it wrote)
    beyond-stable  such a reader is shown nothing at or behind the last stable offset that it is
                   told, and no partition tells one behind its first undecided transaction
    lost-write     each record of a transaction that its client was told is committed is shown to
                   who reads from the beginning, at the end
    fractured      a transaction of which nobody knows is there with all its records or with none
    duplicate      a value stands once
    poll-skip      a reader that passed the place of a committed record was shown it
    G0             the records of a transaction that was committed before another one began stand
                   before that one's, in every partition
    G2             of two transactions that read the same record as the same group one at most is
                   committed
    group-lost     what the group has passed was read by a transaction that is committed, and the
                   group stands where the last of these has put it: offsets are committed when, and
                   only when, their transaction is
    zombie         what a process asked to commit after the next one had its id is not committed
    phantom        nothing is shown that nobody wrote there

Of a compacted topic, what is "there" or "shown" above is asked of records that no later committed
one of their key superseded; tombstones may be gone (`superseded.py`). A record that was aborted
supersedes nothing.

What a rule allowed to be lost of a partition voids what is said of that partition; a loss of
`__transaction_state` all of it. Write cycles between transactions that ran at the same time are
allowed: Kafka's logs promise no more. Source: jepsen.tests.kafka, Adya's names, KIP-98, KIP-447.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.sim.checks.superseded import Superseded
from anabranch.sim.checks.violation import Violation
from anabranch.sim.plan_parts import PASSING, RESULTS, TRANSFERS
from anabranch.sim.transaction_history import ABORTED, COMMITTED, NEVER, OPEN, UNKNOWN
from anabranch.sim.transaction_plan import STATE_TOPIC

if TYPE_CHECKING:
    from anabranch.core.types import TopicPartition
    from anabranch.sim.checks.logs import LogChecks
    from anabranch.sim.transaction_history import Read, Transaction, TransactionHistory, Written

Seen = dict["TopicPartition", dict[int, bytes]]
Spot = tuple["TopicPartition", int]
"""A record that a group has read: where it lies."""
AUDITS_COMMITTED, AUDITS_ALL = "audits-committed", "audits-all"


class TransactionChecks:
    """See the module."""

    def __init__(self, history: TransactionHistory, logs: LogChecks) -> None:
        self.history = history
        self.logs = logs
        history.on_read = self.read
        history.on_committed = self.committed
        self._of_value: dict[bytes, tuple[Transaction, Written]] = {}
        self._known = 0
        self.committed_values: Seen = defaultdict(dict)
        """What the auditor saw who reads what is committed."""
        self._shown: set[bytes] = set()
        """Values that were ever shown as committed."""
        self.all_values: Seen = defaultdict(dict)
        self.unreadable: set[TopicPartition] = set()
        """Partitions that nobody can read at the end: all who could lead have lost their disks, or
        an operator has to decide. What they hold cannot be asked for."""

    # What is told.

    def read(self, read: Read) -> None:
        """A reader moved on."""
        if read.is_committed and 0 <= read.stable < read.end and not self.is_void(read.place):
            raise Violation(
                "beyond-stable", "A reader was shown what lies behind the last stable offset.",
                {"client": read.client, "partition": read.place, "stable": read.stable,
                 "end": read.end},
            )  # fmt: skip
        for offset, value in read.records:
            found = self._found(value)
            if found is None or found[1].place != read.place:
                raise Violation(
                    "phantom", "A value was shown that nobody wrote there.",
                    {"client": read.client, "partition": read.place, "offset": offset,
                     "value": value},
                )  # fmt: skip
            if read.is_committed:
                self._check_shown(read, offset, *found)

    def _check_shown(
        self, read: Read, offset: int, transaction: Transaction, written: Written
    ) -> None:
        if self.is_void(read.place):
            return
        was_asked = 0 <= transaction.commit_sent_us <= read.at_us
        if was_asked and transaction.outcome != ABORTED:
            self._shown.add(written.value)
            return
        raise Violation(
            "aborted-read", "A record was shown as committed of a transaction that is not.",
            {"client": read.client, "partition": read.place, "offset": offset,
             "value": written.value, "transaction": transaction.label,
             "outcome": transaction.outcome},
        )  # fmt: skip

    def _found(self, value: bytes) -> tuple[Transaction, Written] | None:
        found = self._of_value.get(value)
        if found is None:
            for transaction in self.history.transactions[self._known :]:
                for each in transaction.writes:
                    self._of_value[each.value] = (transaction, each)
            settled = [each.outcome != OPEN for each in self.history.transactions]
            while self._known < len(settled) and settled[self._known]:
                self._known += 1
            found = self._of_value.get(value)
        return found

    def committed(self, transaction: Transaction) -> None:
        """A client was told that its transaction is committed."""
        for each in self.history.starts:
            if (
                each.transactional_id == transaction.transactional_id
                and each.client != transaction.client
                and each.producer_id == transaction.producer_id
                and each.epoch > transaction.epoch
                and each.at_us < transaction.commit_sent_us
                and not self._is_void_state
            ):
                raise Violation(
                    "zombie", "A process committed after the next one had its id.",
                    {"transaction": transaction.label, "epoch": transaction.epoch,
                     "next": each.client, "next_epoch": each.epoch},
                )  # fmt: skip

    # What is not promised.

    @property
    def _is_void_state(self) -> bool:
        return any(
            truth.losses or truth.forks
            for place, truth in self.logs.places.items()
            if place.topic == STATE_TOPIC
        )

    def is_void(self, place: TopicPartition) -> bool:
        """Whether a rule allowed something of a partition, or of its coordinators, to be lost."""
        truth = self.logs.places.get(place)
        return self._is_void_state or (truth is not None and bool(truth.losses or truth.forks))

    def _is_judged(self, place: TopicPartition) -> bool:
        if place in self.unreadable:
            return False
        return place.topic != PASSING and not self.is_void(place)

    @property
    def is_void_group(self) -> bool:
        """The same of all that the group's offsets stand on."""
        topics = (OFFSETS_TOPIC, TRANSFERS, RESULTS)
        if self._is_void_state or any(place.topic in topics for place in self.unreadable):
            return True
        return any(
            truth.losses or truth.forks
            for place, truth in self.logs.places.items()
            if place.topic in topics
        )

    # The end.

    def end(self) -> None:
        """Judge the whole history."""
        self._superseded = Superseded(self.history, self.logs.places)
        for read in self.history.reads:
            if read.client.startswith(AUDITS_COMMITTED):
                self.committed_values[read.place].update(read.records)
            elif read.client.startswith(AUDITS_ALL):
                self.all_values[read.place].update(read.records)
        self._check_duplicates()
        for transaction in self.history.transactions:
            self._check_whole(transaction)
        self._check_readers()
        self._check_order()
        self._check_group()

    def _is_there(self, written: Written) -> bool:
        return self._place_of(written) is not None

    def _place_of(self, written: Written) -> int | None:
        shown = self.committed_values[written.place]
        if written.offset >= 0:
            return written.offset if shown.get(written.offset) == written.value else None
        return next((at for at, value in shown.items() if value == written.value), None)

    def _check_duplicates(self) -> None:
        for place, shown in self.all_values.items():
            first: dict[bytes, int] = {}
            for offset, value in sorted(shown.items()):
                before = first.setdefault(value, offset)
                if before != offset and self._is_judged(place):
                    raise Violation(
                        "duplicate", "A value stands at two offsets.",
                        {"partition": place, "value": value, "offsets": (before, offset)},
                    )  # fmt: skip

    def _check_whole(self, transaction: Transaction) -> None:
        if not self._was_committed(transaction):
            return
        judged = [each for each in transaction.writes if self._is_judged(each.place)]
        missing = next((each for each in judged if not self._is_there_or_may_be_gone(each)), None)
        if missing is None:
            return
        there = sum(map(self._is_there, judged))
        told = {"transaction": transaction.label, "records": len(judged), "there": there,
                "partition": missing.place, "value": missing.value,
                "offset": missing.offset}  # fmt: skip
        if transaction.outcome == COMMITTED:
            raise Violation(
                "lost-write", "A record of a committed transaction is not there at the end.", told
            )
        raise Violation("fractured", "A part of a transaction is there, and another is not.", told)

    def _is_there_or_may_be_gone(self, written: Written) -> bool:
        return self._is_there(written) or self._superseded.may_be_gone(
            written, self.history.world.now_us
        )

    def _was_committed(self, transaction: Transaction) -> bool:
        if transaction.outcome == COMMITTED:
            return True
        return transaction.outcome == UNKNOWN and any(
            each.value in self._shown or (self._is_there(each) and not self.is_void(each.place))
            for each in transaction.writes
        )

    def _may_have_been_committed(self, transaction: Transaction) -> bool:
        """Whether all that would show it may be gone."""
        return transaction.outcome == UNKNOWN and all(
            map(self._is_there_or_may_be_gone, transaction.writes)
        )

    def _may_be_gone(self, value: bytes, by_us: int) -> bool:
        found = self._found(value)
        return found is not None and self._superseded.may_be_gone(found[1], by_us)

    def _check_readers(self) -> None:
        for read in self.history.reads:
            if not read.is_committed or not self._is_judged(read.place):
                continue
            shown = dict(read.records)
            for offset, value in self.committed_values[read.place].items():
                if not read.start <= offset < read.end or offset in shown:
                    continue
                if not self._may_be_gone(value, read.at_us):
                    raise Violation(
                        "poll-skip", "A reader passed a committed record and was not shown it.",
                        {"client": read.client, "partition": read.place, "offset": offset,
                         "value": value, "from": read.start, "to": read.end},
                    )  # fmt: skip

    def _check_order(self) -> None:
        for place, shown in self.committed_values.items():
            latest: Transaction | None = None
            for offset, value in sorted(shown.items()):
                found = self._found(value)
                if found is None or not self._is_judged(place):
                    continue
                transaction = found[0]
                if latest is not None and NEVER < transaction.ended_us < latest.began_us:
                    raise Violation(
                        "G0", "A transaction stands behind one that began after it had ended.",
                        {"partition": place, "offset": offset, "earlier": transaction.label,
                         "later": latest.label},
                    )  # fmt: skip
                if latest is None or transaction.began_us > latest.began_us:
                    latest = transaction

    # The group.

    def _check_group(self) -> None:
        offsets = self.history.final_offsets
        if self.is_void_group or not offsets:
            return
        readers: dict[Spot, Transaction] = {}
        ends: dict[TopicPartition, int] = {}
        for transaction in self.history.transactions:
            if not transaction.consumed or not self._was_committed(transaction):
                continue
            for spot in transaction.consumed:
                before = readers.setdefault(spot, transaction)
                if before is not transaction:
                    raise Violation(
                        "G2", "Two committed transactions read the same record for one group.",
                        {"partition": spot[0], "offset": spot[1], "one": before.label,
                         "other": transaction.label},
                    )  # fmt: skip
            for place, offset in transaction.offsets.items():
                ends[place] = max(ends.get(place, NEVER), offset)
        unclear = [
            each
            for each in self.history.transactions
            if not self._was_committed(each) and self._may_have_been_committed(each)
        ]
        passed = {*readers, *(spot for each in unclear for spot in each.consumed)}
        for place, offset in offsets.items():
            end = ends.get(place, NEVER)
            if offset > end and any(each.offsets.get(place) == offset for each in unclear):
                end = offset
            self._check_passed(place, offset, end, passed)

    def _check_passed(
        self, place: TopicPartition, offset: int, end: int, passed: set[Spot]
    ) -> None:
        if offset != end:
            raise Violation(
                "group-lost", "The group does not stand where its last transaction has put it.",
                {"partition": place, "offset": offset, "transactions": end},
            )  # fmt: skip
        for at, value in self.committed_values[place].items():
            if at >= offset or (place, at) in passed:
                continue
            if not self._may_be_gone(value, self.history.world.now_us):
                raise Violation(
                    "group-lost", "The group has passed a record that no transaction of it read.",
                    {"partition": place, "offset": at, "value": value, "committed": offset},
                )  # fmt: skip
