"""Who leads after a change of the ISR: a table of cases, and the rules of epochs and of ELR.

The names say which sentence of placement-and-leadership 2.3 each one checks (Kafka's
PartitionChangeBuilderTest has a test for each, except reassignment, which is not here yet).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.controller.partitions.elections import Rules, change_isr, prefer_first
from anabranch.core.metadata.concerns.topics import changed_partition
from anabranch.core.metadata.image import RECOVERED, RECOVERING, PartitionImage
from anabranch.core.types import TopicId

TOPIC = TopicId(b"t" * 16)
NOBODY = -1


def partition(
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    elr: tuple[int, ...] = (),
    last_known: tuple[int, ...] = (),
    recovery: int = RECOVERED,
) -> PartitionImage:
    return PartitionImage(
        replicas, isr, leader, 5, 9, elr=elr, last_known_elr=last_known, recovery_state=recovery
    )


def rules(
    *active: int, minimum: int = 1, elr: bool = False, unclean: bool = False, certain: bool = True
) -> Rules:
    return Rules(lambda broker: broker in active, minimum, elr, unclean, not certain)


def after(
    before: PartitionImage,
    isr: tuple[int, ...],
    held: Rules,
    unclean_shutdown: frozenset[int] = frozenset(),
) -> PartitionImage:
    """The partition after the change, the same when there is none."""
    record = change_isr(TOPIC, 0, before, isr, held, unclean_shutdown)
    return before if record is None else changed_partition(before, record)


# The table of elections.


@pytest.mark.parametrize(
    ("isr", "active", "unclean", "leader"),
    [
        pytest.param((1, 2, 3), (1, 2, 3), False, 1, id="the present leader stays"),
        pytest.param((3, 2), (2, 3), False, 2, id="else the first valid one of the replica list"),
        pytest.param((3, 2), (3,), False, 3, id="who is not acceptable is passed over"),
        pytest.param((3,), (1, 2, 3), False, 3, id="who is not in the ISR is passed over"),
        pytest.param((3,), (1, 2), False, NOBODY, id="none without an unclean election"),
        pytest.param((3,), (2,), True, 2, id="unclean: the first acceptable of the replica list"),
        pytest.param((3,), (1, 2, 3), True, 3, id="unclean is the last resort"),
        pytest.param((3,), (), True, NOBODY, id="unclean needs somebody too"),
    ],
)
def test_the_table_of_online_and_unclean_elections(
    isr: tuple[int, ...], active: tuple[int, ...], unclean: bool, leader: int
) -> None:
    assert after(partition(), isr, rules(*active, unclean=unclean)).leader == leader


@pytest.mark.parametrize(
    ("isr", "leader", "active", "chosen"),
    [
        pytest.param((1, 2), 2, (1, 2), 1, id="the first replica leads again"),
        pytest.param((1, 2), 1, (1, 2), None, id="it leads already"),
        pytest.param((2, 3), 2, (1, 2, 3), None, id="it is not in sync"),
        pytest.param((1, 2), 2, (2,), None, id="it is not active"),
    ],
)
def test_the_table_of_preferred_elections(
    isr: tuple[int, ...], leader: int, active: tuple[int, ...], chosen: int | None
) -> None:
    record = prefer_first(TOPIC, 0, partition(isr=isr, leader=leader), rules(*active))
    assert (record.leader if record is not None else None) == chosen


def test_a_preferred_election_is_never_unclean_by_itself() -> None:
    away = partition(isr=(3,), leader=3)
    assert prefer_first(TOPIC, 0, away, rules(1, 2, 3, unclean=True, elr=True)) is None


def test_who_is_eligible_is_no_more_once_the_new_leader_alone_is_enough() -> None:
    """It may acknowledge by itself from now on: the others would lack that."""
    before = partition(isr=(), leader=NOBODY, elr=(1, 3))
    alone = after(before, (), rules(1, minimum=1, elr=True))
    assert (alone.leader, alone.isr, alone.elr) == (1, (1,), ())
    too_few = after(before, (), rules(1, minimum=2, elr=True))
    assert (too_few.leader, too_few.isr, too_few.elr) == (1, (1,), (3,))


def test_a_preferred_election_passes_over_who_lost_its_disk_since_it_was_in_sync() -> None:
    held = replace(rules(1, 2, 3), emptied={1: b"a new folder's i"})
    assert prefer_first(TOPIC, 0, partition(leader=2), held) is None


def test_the_order_is_the_assignments_not_the_isrs() -> None:
    assert after(partition(replicas=(3, 2, 1)), (1, 2), rules(1, 2)).leader == 1
    gone = partition(replicas=(3, 2, 1), leader=3)
    assert after(gone, (1, 2), rules(1, 2)).leader == 2


# Epochs and records.


def test_a_change_of_nothing_gives_no_record() -> None:
    assert change_isr(TOPIC, 0, partition(), (1, 2, 3), rules(1, 2, 3)) is None


@pytest.mark.parametrize("isr", [(1,), (1, 2)])
def test_an_isr_that_shrinks_changes_no_leader_epoch(isr: tuple[int, ...]) -> None:
    state = after(partition(), isr, rules(1, 2, 3))
    assert (state.isr, state.leader_epoch, state.partition_epoch) == (isr, 5, 10)


def test_an_isr_that_grows_changes_no_leader_epoch() -> None:
    state = after(partition(isr=(1,)), (1, 2), rules(1, 2, 3))
    assert (state.isr, state.leader_epoch, state.partition_epoch) == ((1, 2), 5, 10)


def test_an_empty_target_keeps_the_isr_so_that_its_last_member_may_lead_again() -> None:
    state = after(partition(isr=(1,)), (), rules(2, 3))
    assert (state.isr, state.leader, state.leader_epoch) == ((1,), NOBODY, 6)
    again = after(state, state.isr, rules(1))
    assert (again.leader, again.recovery_state) == (1, RECOVERED)


def test_an_empty_target_with_a_living_leader_changes_nothing() -> None:
    assert change_isr(TOPIC, 0, partition(isr=(1,)), (), rules(1, 2)) is None


def test_isr_and_leader_may_change_in_one_record() -> None:
    state = after(partition(), (2, 3), rules(2, 3))
    assert (state.isr, state.leader, state.leader_epoch, state.partition_epoch) == (
        (2, 3),
        2,
        6,
        10,
    )


# Unclean elections.


def test_an_unclean_leader_is_alone_in_sync_and_recovers() -> None:
    state = after(partition(isr=(1,)), (), rules(2, 3, unclean=True))
    assert (state.leader, state.isr, state.recovery_state) == (2, (2,), RECOVERING)


def test_an_unclean_leader_leaves_nobody_eligible() -> None:
    gone = partition(isr=(), leader=NOBODY, elr=(1, 3), last_known=(1,))
    state = after(gone, (), rules(2, minimum=2, elr=True, unclean=True))
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (2, (2,), (), ())


def test_a_change_of_leaders_does_not_end_the_recovery() -> None:
    recovering = partition(isr=(1, 2), recovery=RECOVERING)
    assert after(recovering, (2,), rules(2)).recovery_state == RECOVERING
    unclean = after(partition(isr=(1,), recovery=RECOVERING), (), rules(2, unclean=True))
    assert (unclean.leader, unclean.recovery_state) == (2, RECOVERING)


@pytest.mark.parametrize("elr", [True, False])
def test_nobody_leads_uncleanly_while_it_is_uncertain_who_is_gone(elr: bool) -> None:
    held = rules(2, 3, unclean=True, elr=elr, certain=False)
    assert after(partition(isr=(1,)), (), held).leader == NOBODY
    last_known = partition(isr=(), leader=NOBODY, last_known=(2,))
    assert after(last_known, (), rules(2, elr=True, certain=False)).leader == NOBODY


# Eligible leader replicas (KIP-966).


def test_elr_who_leaves_an_isr_below_the_minimum_stays_eligible() -> None:
    state = after(partition(), (1,), rules(1, 2, 3, minimum=2, elr=True))
    assert (state.isr, state.elr) == ((1,), (2, 3))


def test_elr_the_minimum_is_never_more_than_the_replicas() -> None:
    state = after(partition(), (1, 2), rules(1, 2, 3, minimum=5, elr=True))
    assert state.elr == (3,)
    assert after(state, (1, 2, 3), rules(1, 2, 3, minimum=5, elr=True)).elr == ()


def test_elr_is_emptied_when_the_isr_reaches_the_minimum() -> None:
    before = partition(isr=(1,), elr=(2,), last_known=(3,))
    state = after(before, (1, 3), rules(1, 2, 3, minimum=2, elr=True))
    assert (state.isr, state.elr, state.last_known_elr) == ((1, 3), (), ())


def test_elr_keeps_its_members_when_another_joins_the_isr_below_the_minimum() -> None:
    before = partition(replicas=(1, 2, 3, 4), isr=(1,), elr=(2,))
    state = after(before, (1, 4), rules(1, 2, 4, minimum=3, elr=True))
    assert (state.isr, state.elr) == ((1, 4), (2,))


def test_elr_who_stopped_without_order_is_not_eligible() -> None:
    before = partition(isr=(1,), elr=(2, 3))
    held = rules(1, minimum=2, elr=True)
    assert after(before, (1,), held, frozenset({2})).elr == (3,)


def test_elr_an_eligible_replica_is_elected_cleanly_when_the_isr_is_empty() -> None:
    before = partition(isr=(), leader=NOBODY, elr=(2, 3), last_known=(1,))
    state = after(before, (), rules(3, minimum=2, elr=True))
    assert (state.leader, state.isr, state.elr) == (3, (3,), (2,))
    assert (state.recovery_state, state.last_known_elr) == (RECOVERED, ())


def test_elr_the_isr_can_shrink_to_nobody() -> None:
    state = after(partition(isr=(1,), elr=(2,)), (), rules(minimum=2, elr=True))
    assert (state.isr, state.elr, state.leader) == ((), (1, 2), NOBODY)


def test_elr_the_last_known_leader_is_remembered_when_nobody_leads() -> None:
    held = rules(minimum=2, elr=True)
    state = after(partition(isr=(1,)), (), held, frozenset({1}))
    assert (state.isr, state.elr, state.last_known_elr) == ((), (), (1,))
    assert change_isr(TOPIC, 0, state, (), held) is None, "once"


def test_elr_the_last_known_leader_leads_when_nobody_is_eligible_and_counts_as_unclean() -> None:
    before = partition(isr=(), leader=NOBODY, last_known=(1,))
    state = after(before, (), rules(1, 2, 3, minimum=2, elr=True))
    assert (state.leader, state.isr, state.recovery_state) == (1, (1,), RECOVERING)
    assert state.last_known_elr == ()


@pytest.mark.parametrize(
    ("elr", "last_known", "active", "enabled"),
    [
        pytest.param((2,), (1,), (1,), True, id="somebody is eligible"),
        pytest.param((), (1, 2), (1, 2), True, id="more than one is known"),
        pytest.param((), (1,), (2, 3), True, id="it is not acceptable"),
        pytest.param((), (), (1, 2), True, id="none is known"),
        pytest.param((), (1,), (1,), False, id="ELR is off"),
    ],
)
def test_elr_the_last_known_leader_does_not_lead(
    elr: tuple[int, ...], last_known: tuple[int, ...], active: tuple[int, ...], enabled: bool
) -> None:
    before = partition(isr=(), leader=NOBODY, elr=elr, last_known=last_known)
    assert after(before, (), rules(*active, minimum=2, elr=enabled)).leader == NOBODY


# What holds in every case.

BROKERS = (1, 2, 3, 4)
SUBSETS = st.sets(st.sampled_from(BROKERS)).map(sorted).map(tuple)


@given(SUBSETS, SUBSETS, SUBSETS, SUBSETS, st.integers(1, 4), st.booleans(), st.booleans())
def test_a_clean_leader_was_in_sync_or_eligible(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    target: tuple[int, ...],
    active: tuple[int, ...],
    minimum: int,
    enabled: bool,
    unclean: bool,
) -> None:
    leader = isr[0] if isr else NOBODY
    elr = tuple(each for each in elr if each not in isr) if enabled else ()
    isr = isr if enabled else isr or (1,)
    before = partition(replicas=BROKERS, isr=isr, leader=leader, elr=elr)
    target = tuple(each for each in isr if each in target)
    state = after(before, target, rules(*active, minimum=minimum, elr=enabled, unclean=unclean))
    if state.leader != NOBODY:
        assert state.leader in state.isr and state.leader in active
        if state.leader not in (*isr, *elr):
            assert unclean and state.recovery_state == RECOVERING and state.isr == (state.leader,)
    assert not set(state.isr) & set(state.elr)
    assert state.isr or enabled
