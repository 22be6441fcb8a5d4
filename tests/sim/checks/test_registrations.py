"""Who took whose place is known from what was committed, not from who was told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.core.wire.metadata_records import BrokerEndpoint, RegisterBrokerRecord
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.model import Broker
from anabranch.sim.checks.registrations import RegistrationChecks
from anabranch.sim.checks.violation import Violation
from anabranch.sim.processes import State

TWIN, NODE = b"t" * 16, b"n" * 16


def checks(
    state: State = State.CRASHED, *, is_fenced: bool = False, is_leaving: bool = False
) -> RegistrationChecks:
    """Of a cluster whose broker 1 has ended, as has the process on a copy of its folders. At 9,000
    ms its last heartbeat was confirmed at 8,500 ms, its session is 3,000 ms."""
    machine = SimpleNamespace(confirmed_ms=8_500)
    session = SimpleNamespace(
        incarnation_id=NODE, broker_epoch=7, machine=machine, is_leaving=is_leaving
    )
    node = SimpleNamespace(
        node_id=1, name="node-1", advertised_host="node-1", session=session, state=state,
        steady_ms=9_000, config=SimpleNamespace(broker_session_timeout_ms=3_000),
        clock=SimpleNamespace(changed_us=0),
    )  # fmt: skip
    twin = SimpleNamespace(node_id=1, name="node-1-twin-0", incarnation_id=TWIN)
    world = SimpleNamespace(now_us=1_000_000)
    cluster: Any = SimpleNamespace(nodes={1: node}, twins=[twin], world=world)
    model: Any = SimpleNamespace(brokers={1: Broker(7, fenced=is_fenced, leaving=False)}, epoch=1)
    made = RegistrationChecks(cluster, model, Marks())
    made.committed(())
    world.now_us = 9_000_000
    return made


def replaced(told: RegistrationChecks, host: str = "node-1-twin-0") -> None:
    """The process on a copy of the folders takes the place of the broker."""
    address = BrokerEndpoint(name="B", host=host, port=9092, security_protocol=0)
    records = (RegisterBrokerRecord(broker_id=1, incarnation_id=TWIN, end_points=[address]),)
    told.is_committing(records)
    told.model.brokers[1] = Broker(9, fenced=True, leaving=False)
    told.committed(records)


def test_a_copy_that_ended_before_it_was_answered_took_the_place() -> None:
    told = checks()
    told.is_committing((RegisterBrokerRecord(broker_id=1, incarnation_id=TWIN),))
    assert told.copied == {1}


def test_a_broker_that_registers_again_was_not_copied() -> None:
    told = checks()
    told.is_committing((RegisterBrokerRecord(broker_id=1, incarnation_id=NODE),))
    assert told.copied == set()


@pytest.mark.parametrize("epoch", [6, 7])
def test_a_registration_that_comes_after_its_process_was_replaced_is_of_older_folders(
    epoch,
) -> None:
    """It lay in the network, while the next process registered and ended."""
    told = checks()
    node: Any = told.cluster.nodes[1]
    node.session.is_leaving, node.session.incarnation_id = False, b"e" * 16
    told.node_changed(node, "crash")
    node.session.incarnation_id = NODE
    told.model.brokers[1] = Broker(epoch, fenced=True, leaving=False)
    told.is_committing((RegisterBrokerRecord(broker_id=1, incarnation_id=b"e" * 16),))
    assert told.copied == ({1} if epoch == 7 else set())


@pytest.mark.parametrize(("is_fenced", "terms"), [(False, 1), (False, 2), (True, 1)])
def test_who_is_heard_is_not_replaced(is_fenced: bool, terms: int) -> None:
    told = checks(State.RUNNING, is_fenced=is_fenced)
    told.model.epoch = terms
    with pytest.raises(Violation, match="took the place"):
        replaced(told)


def test_a_fenced_broker_has_no_session_at_a_new_controller() -> None:
    told = checks(State.RUNNING, is_fenced=True)
    told.model.epoch = 2
    replaced(told)


@pytest.mark.parametrize("terms", [1, 2])
def test_a_new_controller_believes_who_has_the_address_of_one_that_it_has_not_heard(
    terms: int,
) -> None:
    told = checks(State.RUNNING)
    told.model.epoch = terms
    if terms == 2:
        replaced(told, host="node-1")
        return
    with pytest.raises(Violation, match="took the place"):
        replaced(told, host="node-1")


@pytest.mark.parametrize("is_fenced", [False, True])
def test_who_was_let_go_may_be_replaced_before_it_hears_of_that(is_fenced: bool) -> None:
    told = checks(State.RUNNING, is_fenced=is_fenced, is_leaving=True)
    if is_fenced:
        replaced(told)
        return
    with pytest.raises(Violation, match="took the place"):
        replaced(told)


@pytest.mark.parametrize("resigned_ms", [8_499, 8_501])
def test_a_heartbeat_that_a_replaced_controller_confirmed_does_not_count(resigned_ms: int) -> None:
    """Its lease is gone, and its store is too slow to tell; the new one hears nothing."""
    told = checks(State.RUNNING)
    told.model.epoch = 2
    world = told.cluster.world
    world.now_us = 5_000_000
    told.committed(())
    world.now_us = resigned_ms * 1_000
    told.noted("resigned", "node-2", "another controller took the lease")
    world.now_us = 9_000_000
    if resigned_ms > 8_500:
        replaced(told)
        return
    with pytest.raises(Violation, match="took the place"):
        replaced(told)
