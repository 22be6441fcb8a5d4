"""Broken rules of how rehearsals on processes are compared with the simulation."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

OUTCOME = "anabranch.sim.rehearsal.outcome"
OUTCOME_TESTS = "tests/sim/rehearsal/test_outcome.py"

MUTANTS = (
    Mutant(
        name="which-broker-leads-is-not-compared",
        rule="real processes differ from a rehearsal if another broker leads, unless chance decides",
        module=OUTCOME,
        old="(number >= chance and min(leaders) >= 0)",
        new="min(leaders) >= 0",
        seed=NO_SCHEDULE,
        caught_by=f"{OUTCOME_TESTS}::test_another_leader_is_a_difference_until_chance_decides",
    ),
    Mutant(
        name="what-follows-may-come-at-once",
        rule="processes are at rest when each replica is where the rehearsed one was",
        module=OUTCOME,
        old="return state == wanted or (",
        new="return state.serves == wanted.serves or (",
        seed=NO_SCHEDULE,
        caught_by=f"{OUTCOME_TESTS}::test_processes_are_at_rest_where_every_replica_is",
    ),
)
