"""The broken rules of managed replication factors: decisions about the replicas of diskless topics.

The simulator has no diskless topics yet: a test of the one decision notices each. See
`mutant_table.py`.
"""

from __future__ import annotations

from anabranch.sim.mutants import Mutant

NO_SCHEDULE = -1

REPLICAS = "tests/core/controller/test_managed_replicas.py"
STEPS = "tests/core/controller/test_managed_reconciliation.py"
CONTROLLER = "tests/core/controller/test_managed_reconciling.py"

MANAGED = (
    Mutant(
        name="diskless-in-sync-shrinks",
        rule="all replicas of a diskless partition are in sync, dead ones too",
        module="anabranch.core.controller.diskless.leaders",
        old="    if tuple(row) != partition.isr:\n        record.isr = row\n",
        new="    if list(partition.isr) != [each for each in row if acceptable(each)]:\n"
        "        record.isr = [each for each in row if acceptable(each)]\n",
        seed=NO_SCHEDULE,
        caught_by=f"{REPLICAS}::test_the_leader_is_always_among_the_living_and_the_dead_stay_in_sync",
    ),
    Mutant(
        name="dead-diskless-replica-leads",
        rule="a diskless partition is led by a living replica",
        module="anabranch.core.controller.diskless.leaders",
        old="    living = [each for each in replicas if acceptable(each)]\n",
        new="    living = replicas\n",
        seed=NO_SCHEDULE,
        caught_by=f"{REPLICAS}::test_the_leader_is_always_among_the_living_and_the_dead_stay_in_sync",
    ),
    Mutant(
        name="diskless-factor-of-three-accepted",
        rule="the replication factor of a diskless topic is not the request's",
        module="anabranch.core.controller.diskless.creation",
        old="MANAGED_FACTORS = (-1, 1)",
        new="MANAGED_FACTORS = (-1, 1, 3)",
        seed=NO_SCHEDULE,
        caught_by=f"{REPLICAS}::test_who_chooses_replicas_is_refused_in_the_words_of_the_document",
    ),
    Mutant(
        name="cordoned-rack-goes",
        rule="a rack of which a broker is only cordoned is never UNAVAILABLE",
        module="anabranch.core.controller.diskless.racks",
        old="            seen = Seen.GONE if self.gone.issuperset(brokers) else Seen.NO_CAPACITY\n",
        new="            seen = Seen.GONE\n",
        seed=NO_SCHEDULE,
        caught_by=f"{CONTROLLER}::test_a_cordoned_rack_is_degraded_for_ever_and_unavailable_never",
    ),
    Mutant(
        name="cordoned-broker-is-eligible",
        rule="a cordoned broker is not eligible for diskless replicas",
        module="anabranch.core.controller.diskless.racks",
        old="self.eligible = self.living - closed",
        new="self.eligible = self.living",
        seed=NO_SCHEDULE,
        caught_by=f"{STEPS}::test_a_rack_is_healthy_degraded_or_unavailable_as_its_brokers_are",
    ),
    Mutant(
        name="new-controller-counts-anew",
        rule="the time of an absence survives the controller",
        module="anabranch.core.controller.diskless.absence",
        old="0 if known is None else known.elapsed_ms\n\n",
        new="0\n\n",
        seed=NO_SCHEDULE,
        caught_by=f"{CONTROLLER}::test_a_new_controller_goes_on_counting",
    ),
    Mutant(
        name="pause-of-the-controller-counts",
        rule="no pause of the controller counts as an absence",
        module="anabranch.core.controller.diskless.absence",
        old="min(max(now_ms - self._looked_ms, 0), MOST_STEP_MS)",
        new="max(now_ms - self._looked_ms, 0)",
        seed=NO_SCHEDULE,
        caught_by=f"{CONTROLLER}::test_a_pause_of_the_controller_does_not_count",
    ),
    Mutant(
        name="deaf-controller-counts",
        rule="a controller that hears nobody counts no absence",
        module="anabranch.core.controller.diskless.absence",
        old=" if counts else 0\n",
        new="\n",
        seed=NO_SCHEDULE,
        caught_by=f"{CONTROLLER}::test_a_controller_that_hears_nobody_counts_nothing",
    ),
    Mutant(
        name="back-and-still-gone",
        rule="a broker that is back is not gone",
        module="anabranch.core.metadata.replay",
        old='        del builder.changing("absences")[broker_id]\n',
        new="        pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{CONTROLLER}::test_a_rack_that_blinks_keeps_everything",
    ),
    Mutant(
        name="last-diskless-replica-goes",
        rule="the last replica of a partition is never removed",
        module="anabranch.core.controller.diskless.reconciliation",
        old="        keep.add(leader if leader in row else row[0])\n",
        new="        pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{STEPS}::test_every_partition_comes_to_one_replica_a_rack_step_by_step_and_stays",
    ),
    Mutant(
        name="degraded-rack-loses-replicas",
        rule="what a DEGRADED rack has stays",
        module="anabranch.core.controller.diskless.reconciliation",
        old="            keep.update(brokers)\n",
        new="            keep.add(brokers[0])\n",
        seed=NO_SCHEDULE,
        caught_by=f"{STEPS}::test_every_partition_comes_to_one_replica_a_rack_step_by_step_and_stays",
    ),
    Mutant(
        name="dead-replica-replaced-too-early",
        rule="a dead replica in a HEALTHY rack waits for the threshold",
        module="anabranch.core.controller.diskless.reconciliation",
        old="(nobody_lives or best in racks.gone)",
        new="True",
        seed=NO_SCHEDULE,
        caught_by=f"{CONTROLLER}::test_a_dead_replica_in_a_healthy_rack_is_replaced_there_after_the_threshold",
    ),
    Mutant(
        name="dead-partition-waits-too",
        rule="a partition of which no replica lives gets a living one at once",
        module="anabranch.core.controller.diskless.reconciliation",
        old="(nobody_lives or best in racks.gone)",
        new="best in racks.gone",
        seed=NO_SCHEDULE,
        caught_by=f"{CONTROLLER}::test_it_is_replaced_at_once_if_no_replica_lives",
    ),
    Mutant(
        name="leader-goes-first",
        rule="a replica that leads goes after all others",
        module="anabranch.core.controller.diskless.reconciliation",
        old="going = tuple(each for each in extras if each != leader) or tuple(extras)",
        new="going = tuple(extras)",
        seed=NO_SCHEDULE,
        caught_by=f"{STEPS}::test_every_partition_comes_to_one_replica_a_rack_step_by_step_and_stays",
    ),
    Mutant(
        name="removed-before-added",
        rule="a replica is added before the one that it replaces is removed",
        module="anabranch.core.controller.diskless.reconciliation",
        old="made.insert(made.index(dead) + 1, broker_id)",
        new="made[made.index(dead)] = broker_id",
        seed=NO_SCHEDULE,
        caught_by=f"{STEPS}::test_a_replacement_takes_the_place_in_the_list",
    ),
    Mutant(
        name="most-loaded-gets-the-replica",
        rule="the least loaded eligible broker of a rack gets its replica",
        module="anabranch.core.controller.diskless.reconciliation",
        old="(carried.get(each, 0), each))",
        new="(-carried.get(each, 0), each))",
        seed=NO_SCHEDULE,
        caught_by=f"{STEPS}::test_every_partition_comes_to_one_replica_a_rack_step_by_step_and_stays",
    ),
    Mutant(
        name="pace-does-not-hold",
        rule="diskless replicas change at their own pace",
        module="anabranch.core.controller.diskless.reconciling",
        old="len(self.records) >= self._allowed",
        new="False",
        seed=NO_SCHEDULE,
        caught_by=f"{CONTROLLER}::test_the_pace_holds_and_quiet_follows",
    ),
    Mutant(
        name="everything-looked-at-again",
        rule="only what a change concerns is looked at",
        module="anabranch.core.controller.diskless.reconciling",
        old="self._queue(self._concerned(state, before, self.racks))",
        new="self._queue(state.diskless.keys)",
        seed=NO_SCHEDULE,
        caught_by=f"{CONTROLLER}::test_a_change_costs_what_it_concerns",
    ),
    Mutant(
        name="frozen-partition-moves",
        rule="with auto-reconcile off nothing moves by itself",
        module="anabranch.core.controller.diskless.reconciling",
        old="step.row if step is not None and self._reconciles else",
        new="step.row if step is not None else",
        seed=NO_SCHEDULE,
        caught_by=f"{CONTROLLER}::test_with_auto_reconcile_off_drift_stays_and_is_said_once",
    ),
)
