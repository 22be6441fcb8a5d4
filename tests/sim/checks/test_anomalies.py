"""Each of Jepsen's anomalies, written into a history by hand, is found under its name."""

from __future__ import annotations

import pytest

from anabranch.core.types import TopicPartition
from anabranch.sim.checks.anomalies import NOT_REPLICATED, Anomalies
from anabranch.sim.checks.entries import Entry
from anabranch.sim.checks.logs import LogChecks
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.model import Model
from anabranch.sim.checks.truth import Loss, Truth
from anabranch.sim.checks.violation import Violation
from anabranch.sim.history import History, Poll, Send

PLACE = TopicPartition("t", 0)


class Story:
    """A history that is told record by record."""

    def __init__(self) -> None:
        self.history = History()
        self.logs = LogChecks(Model(), Marks())
        self.truth = self.logs.places[PLACE] = Truth((b"", 0))

    def sent(
        self,
        value: str,
        offset: int,
        *,
        outcome: str = "ok",
        acks: int = -1,
        idempotent: bool = True,
        key: bytes | None = None,
    ) -> None:
        send = Send(value, "p", PLACE, value.encode(), acks, idempotent, 0, 1, outcome, offset)
        send.key = key
        self.history.add(send)

    def read(
        self, first: int, values: str, *, client: str = "r", position: int | None = None
    ) -> None:
        """Values by their letters at offsets from `first` on; '-' leaves an offset out."""
        records = [
            (first + index, value.encode()) for index, value in enumerate(values) if value != "-"
        ]
        at = first if position is None else position
        self.history.add(Poll(client, PLACE, 0, at, records, 0, client.startswith("member")))

    def audited(self, values: str, first: int = 0) -> None:
        self.read(first, values, client="auditor")

    def lost(self, base: int, end: int, rule: str = "unclean election") -> None:
        self.truth.losses.append(Loss(Entry(base, end, 0, 0, -1, -1, -1), rule, 1))
        self.truth.forks.append((base, rule))

    def found(self) -> str:
        """The name of the anomaly, "" for none."""
        try:
            Anomalies(self.history, self.logs).check()
        except Violation as violation:
            return violation.id
        return ""

    def allowed(self) -> dict[str, int]:
        anomalies = Anomalies(self.history, self.logs)
        anomalies.check()
        return dict(anomalies.allowed)


def clean() -> Story:
    story = Story()
    for offset, value in enumerate("abcd"):
        story.sent(value, offset)
    story.sent("e", -1, outcome="unknown")
    story.sent("f", -1, outcome="failed")
    story.read(0, "ab")
    story.read(2, "cd")
    story.audited("abcd")
    return story


def test_a_clean_history():
    assert clean().found() == ""


def test_what_is_not_known_may_be_there_or_not():
    story = clean()
    story.audited("e", first=4)
    assert story.found() == ""


def test_inconsistent_offsets_between_two_readers():
    story = clean()
    story.read(1, "c", client="other")
    assert story.found() == "inconsistent-offsets"


def test_inconsistent_offsets_between_a_producer_and_a_reader():
    story = Story()
    story.sent("a", 0)
    story.audited("-a")
    assert story.found() == "inconsistent-offsets"


def test_duplicate_of_an_idempotent_producer():
    story = clean()
    story.sent("g", -1)
    story.audited("gg", first=4)
    assert story.found() == "duplicate"


def test_a_plain_producer_s_duplicates_are_its_own():
    story = clean()
    story.sent("g", 4, idempotent=False)
    story.audited("gg", first=4)
    assert story.found() == ""


def test_lost_write_below_what_was_seen():
    story = clean()
    story.sent("g", 4)
    story.sent("h", 5)
    story.audited("-h", first=4)
    assert story.found() == "lost-write"


def test_unseen_above_what_was_seen():
    story = clean()
    story.sent("g", 4)
    assert story.found() == "unseen"


def test_unseen_where_the_producer_heard_no_offset():
    story = clean()
    story.sent("g", -1)
    assert story.found() == "unseen"


def test_what_was_deleted_is_not_lost():
    story = Story()
    story.truth.start_moved(2)
    for offset, value in enumerate("abc"):
        story.sent(value, offset)
    story.audited("c", first=2)
    assert story.found() == ""


def test_acks_1_promises_nothing_and_its_losses_are_counted():
    story = clean()
    story.sent("g", 4, acks=1)
    assert story.allowed() == {f"acknowledged: {NOT_REPLICATED}": 1}


def test_a_recorded_rule_allows_and_is_named():
    story = clean()
    story.sent("g", 4)
    story.sent("h", 5)
    story.lost(4, 6)
    story.sent("i", 4)
    story.read(4, "g", client="other")
    story.audited("i", first=4)
    assert story.allowed() == {"acknowledged: unclean election": 2}


def test_a_rule_allows_nothing_before_its_place():
    story = clean()
    story.lost(4, 6)
    story.read(1, "c", client="other")
    assert story.found() == "inconsistent-offsets"


def test_g1a_a_failed_write_is_seen():
    story = clean()
    story.audited("f", first=4)
    assert story.found() == "G1a"


def test_phantom_a_value_nobody_wrote():
    story = clean()
    story.audited("z", first=4)
    assert story.found() == "phantom"


def test_poll_skip_within_an_answer():
    story = clean()
    story.read(0, "a-c", client="other")
    assert story.found() == "poll-skip"


def test_poll_skip_between_answers():
    story = clean()
    story.read(0, "a", client="other")
    story.read(2, "c", client="other")
    assert story.found() == "poll-skip"


def test_a_gap_where_no_record_is_is_none():
    story = Story()
    story.sent("a", 0)
    story.sent("b", 2)
    story.read(0, "a-b")
    story.audited("a-b")
    assert story.found() == ""


@pytest.mark.parametrize("newer", [{"offset": 2}, {"offset": -1, "outcome": "unknown"}])
def test_a_gap_may_be_seen_where_the_newer_record_of_a_key_was_lost_later(newer):
    story = Story()
    story.sent("a", 0, key=b"k")
    story.sent("b", 1)
    story.sent("c", key=b"k", **newer)
    story.read(1, "b", position=0)
    story.audited("ab")
    assert story.found() != ""
    story.lost(2, 3)
    assert story.found() == ""


@pytest.mark.parametrize(
    "newer", [{"offset": 2, "key": b"other"}, {"offset": -1, "outcome": "failed", "key": b"k"}]
)
def test_a_lost_record_excuses_only_gaps_of_its_own_key(newer):
    story = Story()
    story.sent("a", 0, key=b"k")
    story.sent("b", 1)
    story.sent("c", **newer)
    story.lost(2, 3)
    story.read(1, "b", position=0)
    story.audited("ab")
    assert story.found() == "poll-skip"


def test_groups_may_skip_and_go_back_across_rebalances():
    story = clean()
    story.read(0, "a", client="member-1")
    story.read(2, "c", client="member-1")
    story.read(0, "a", client="member-1")
    assert story.found() == ""


@pytest.mark.parametrize("again", [(0, "a"), (1, "b")])
def test_nonmonotonic_poll_between_answers(again):
    story = clean()
    story.read(*again)
    assert story.found() == "nonmonotonic-poll"


def test_nonmonotonic_poll_before_what_was_asked_for():
    story = clean()
    story.read(1, "b", client="other", position=2)
    assert story.found() == "nonmonotonic-poll"


def test_nonmonotonic_send():
    story = Story()
    story.sent("a", 1)
    story.sent("b", 0)
    story.audited("ba")
    assert story.found() == "nonmonotonic-send"
