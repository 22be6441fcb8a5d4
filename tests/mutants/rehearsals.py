"""Broken rules of how rehearsals on processes are compared with the simulation."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

OUTCOME = "anabranch.sim.rehearsal.outcome"
OUTCOME_TESTS = "tests/sim/rehearsal/test_outcome.py"
REAL_TESTS = "tests/testing/test_rehearsal.py"

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
    Mutant(
        name="restarted-before-it-is-due",
        rule="a broker that restarts is down until the simulated one is started",
        module="anabranch.testing.rehearsal.actions",
        old="self.now_us >= event.at_us + turn * event.down_us",
        new="True",
        seed=NO_SCHEDULE,
        caught_by=f"{REAL_TESTS}::test_a_broker_is_down_until_the_simulated_one_is_started",
    ),
    Mutant(
        name="patience-of-a-fixed-length",
        rule="what still moves is waited for",
        module="anabranch.testing.rehearsal.patience",
        old="if seen != self._last:",
        new="if self._last is None:",
        seed=NO_SCHEDULE,
        caught_by=f"{REAL_TESTS}::test_patience_lasts_while_something_moves",
    ),
)
