"""Who took whose place is known from what was committed, not from who was told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from anabranch.core.wire.metadata_records import RegisterBrokerRecord
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.registrations import RegistrationChecks
from anabranch.sim.processes import State

TWIN, NODE = b"t" * 16, b"n" * 16


def checks() -> RegistrationChecks:
    """Of a cluster whose broker 1 has ended, as has the process on a copy of its folders."""
    session = SimpleNamespace(incarnation_id=NODE, broker_epoch=7)
    node = SimpleNamespace(node_id=1, session=session, state=State.CRASHED)
    twin = SimpleNamespace(node_id=1, name="node-1-twin-0", incarnation_id=TWIN)
    cluster: Any = SimpleNamespace(nodes={1: node}, twins=[twin])
    model: Any = None
    return RegistrationChecks(cluster, model, Marks())


def test_a_copy_that_ended_before_it_was_answered_took_the_place() -> None:
    told = checks()
    told.is_committing((RegisterBrokerRecord(broker_id=1, incarnation_id=TWIN),))
    assert told.copied == {1}


def test_a_broker_that_registers_again_was_not_copied() -> None:
    told = checks()
    told.is_committing((RegisterBrokerRecord(broker_id=1, incarnation_id=NODE),))
    assert told.copied == set()
