"""Which of the controller's sentences explains what is ill."""

from __future__ import annotations

from anabranch.client.reasons import Reasons
from anabranch.core.controller.history import MOST_A_DECISION
from anabranch.core.controller.reasons import Code
from anabranch.core.wire.own_fields import SaidReason


def said(code, sentence, partition="", brokers=()):
    return SaidReason(
        at_ms=1, code=code, sentence=sentence, partition=partition, brokers=list(brokers)
    )


REASONS = Reasons(
    [
        said(Code.ISR_CHANGED, "2 left, long ago", "t-0", [2]),
        said(Code.ISR_CHANGED, "2 joined", "t-0", [2]),
        said(Code.ISR_CHANGED, "2 and 3 left", "t-0", [2, 3]),
        said(Code.ISR_CHANGED, "2 left another", "t-1", [2]),
        said(Code.BROKER_PROCESS_GONE, "4 is gone", "", [4]),
        said(Code.LEADER_LOST, "nobody may lead", "t-0", [1]),
        said(Code.TOPIC_CREATED, "topic u created"),
    ]
)


def sentences(told):
    return [each.sentence for each in told]


def test_the_newest_reason_of_each_that_is_missing_once():
    assert sentences(REASONS.of_partition("t-0", 1, [2, 3])) == ["2 and 3 left"]
    assert sentences(REASONS.of_partition("t-0", -1, [2])) == ["nobody may lead", "2 and 3 left"]


def test_a_broker_that_left_many_at_once_has_one_reason():
    assert sentences(REASONS.of_partition("t-77", 1, [4])) == ["4 is gone"]
    assert sentences([REASONS.of_broker(4)]) == ["4 is gone"]


def test_what_nobody_said_has_no_reason():
    assert REASONS.of_partition("t-0", 1, [9]) == []
    assert REASONS.of_broker(9) is None
    assert Reasons().of_partition("t-0", -1, [1]) == []
    assert Reasons().newest(10) == []


def test_the_newest_come_last():
    assert sentences(REASONS.newest(2)) == ["nobody may lead", "topic u created"]
    assert len(REASONS.newest(100)) == 7


def test_one_event_of_many_partitions_is_one_line():
    """Whatever was said of them, in whatever order: what differs in more than the partition stays."""
    back = [said(Code.LEADER_ELECTED, f"broker 1 leads t-{n} (broker 1: it is back)", f"t-{n}")
            for n in range(100)]  # fmt: skip
    lost = [said(Code.LEADER_LOST, f"no replica can lead u-{n}", f"u-{n}") for n in range(3)]
    begun = [said(Code.LEADER_LOST, f"v-{n} has no leader", f"v-{n}") for n in range(5)]
    alone = said("BROKER_STATE_CHANGED", "broker 1 goes from fenced to unfenced", "")
    told = sentences(Reasons([alone, *back, *lost, alone, *begun]).newest(100))
    assert told == [
        alone.sentence,
        "broker 1 leads 100 partitions, t-0 first (broker 1: it is back)",
        *(each.sentence for each in lost),
        alone.sentence,
        *(each.sentence for each in begun),
    ]


def test_several_things_about_each_partition_are_a_line_each():
    """A broker that shuts down leaves the ISR and the leadership of each of its partitions."""
    stops = [
        each
        for n in range(100)
        for each in (
            said(Code.ISR_CHANGED, f"broker 1 left the ISR of t-{n}: it shuts down", f"t-{n}"),
            said(Code.LEADER_LOST, f"no replica can lead t-{n} (it shuts down)", f"t-{n}"),
        )
    ]
    gone = said(Code.BROKER_STATE_CHANGED, "broker 1 goes to shutdown now", "", [1])
    assert sentences(Reasons([*stops, gone]).newest(10)) == [
        "broker 1 left the ISR of 100 partitions, t-0 first: it shuts down",
        "no replica can lead 100 partitions, t-0 first (it shuts down)",
        "broker 1 goes to shutdown now",
    ]
    assert len(Reasons(stops[:6]).newest(10)) == 6


def test_a_decision_of_which_only_the_first_reasons_are_kept_has_at_least_so_many_partitions():
    back = [
        SaidReason(offset=7, code=Code.LEADER_ELECTED, sentence=f"broker 1 leads t-{n}",
                   partition=f"t-{n}")
        for n in range(MOST_A_DECISION)
    ]  # fmt: skip
    assert sentences(Reasons(back).newest(9)) == ["broker 1 leads 20 partitions or more, t-0 first"]
    assert sentences(Reasons(back[1:]).newest(9)) == ["broker 1 leads 19 partitions, t-1 first"]
