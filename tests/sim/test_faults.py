"""Every kind of fault finds something to do, and a cluster that it has met comes to rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.core.wire.batch import crc_is_valid, read_header
from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.faults import rotten_byte
from anabranch.sim.life import draw_plan
from anabranch.sim.plan import FAULTS, SEEDS_OF_PLANS, plain_plan
from anabranch.sim.plan_parts import SECOND_US, Fault
from anabranch.sim.schedule import run_plan

KINDS = sorted({kind for family in FAULTS.values() for kind in family})
END_US = 24 * SECOND_US


def plan_with(kind: str):
    """A short plan with members and one kind of fault, twice."""
    seeds = (seed for seed in range(100) if any(c.membership for c in plain_plan(seed).clients))
    plan = plain_plan(next(seeds))
    faults = tuple(
        Fault(at_us=at * SECOND_US, kind=kind, lasts_us=2 * SECOND_US, aim=7, other=5, strength=0.6)
        for at in (10, 16)
    )
    operations = tuple(each for each in plan.operations if each.at_us < END_US)
    folders = max(2, plan.folders)
    return replace(plan, folders=folders, faults=faults, operations=operations, safety_us=END_US)


@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_happens_and_is_healed(kind):
    outcome = run_plan(plan_with(kind), keeps_trace=True)
    assert outcome.ok, outcome.sentence
    assert outcome.faults >= 1
    assert any("fault " in line and kind in line for line in outcome.lines)


@pytest.mark.parametrize("strength", [0.0, 0.3, 0.7, 0.999])
def test_a_bit_rots_where_a_checksum_tells(strength):
    log = bytearray()
    for offset in range(3):
        log += build_batch([Record(offset, 0, None, b"value")], base_offset=offset)
    at = rotten_byte(bytes(log), strength)
    log[at] ^= 1
    size = read_header(log).size_bytes
    sound = [crc_is_valid(log, position, size) for position in range(0, len(log), size)]
    magic = [log[position + 16] == 2 for position in range(0, len(log), size)]
    assert [a and b for a, b in zip(sound, magic, strict=True)].count(False) == 1


def test_where_nothing_can_be_read_the_last_byte_rots():
    assert rotten_byte(bytes(100), 0.5) == 99
    assert rotten_byte(b"torn", 0.5) == 3


def test_seeds_that_share_a_plan_differ_by_chance_alone():
    one, other = draw_plan(17), draw_plan(17 + 3 * SEEDS_OF_PLANS)
    assert other == replace(one, seed=other.seed)
    assert draw_plan(18) != replace(one, seed=18)
