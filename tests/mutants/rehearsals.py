"""Broken rules of how rehearsals on processes are compared with the simulation."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

ORDERS = "anabranch.sim.rehearsal.orders"
ORDER_TESTS = "tests/sim/rehearsal/test_orders.py"
REAL_TESTS = "tests/testing/test_rehearsal.py"

MUTANTS = (
    Mutant(
        name="one-equal-row-is-enough",
        rule="an order is met when each row so far is the one that it gives",
        module=ORDERS,
        old="return all(mine.at_rest == seen.at_rest for",
        new="return any(mine.at_rest == seen.at_rest for",
        seed=NO_SCHEDULE,
        caught_by=f"{ORDER_TESTS}::test_what_no_order_gives_stays_a_difference",
    ),
    Mutant(
        name="a-moment-has-one-order",
        rule="brokers that end at one moment may be noticed in any order",
        module=ORDERS,
        old="found |= together if len(together) > 1 else set()",
        new="found |= set()",
        seed=NO_SCHEDULE,
        caught_by=f"{ORDER_TESTS}::test_another_order_of_a_moment_is_found_and_named",
    ),
    Mutant(
        name="what-follows-in-a-moment-comes-first",
        rule="what the file says after brokers of the same moment follows them in every order",
        module=ORDERS,
        old="replace(each, at_us=at_us) for each in group",
        new="replace(each, at_us=events[0].at_us) for each in group",
        seed=NO_SCHEDULE,
        caught_by=f"{ORDER_TESTS}::test_an_order_keeps_what_the_file_says_after_it_behind_it",
    ),
    Mutant(
        name="dark-until-its-process-runs",
        rule="machines that start at one moment have power before their processes run",
        module=ORDERS,
        old="powers=tuple(started)",
        new="powers=()",
        seed=NO_SCHEDULE,
        caught_by=f"{ORDER_TESTS}::test_machines_have_power_before_their_processes_start",
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
