"""Broken rules of what a node keeps as time passes: topics, clients and writes that come and go."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

MUTANTS = (
    Mutant(
        name="deleted-partitions-remembered",
        rule="a folder forgets a deleted partition once no checkpoint names it",
        module="anabranch.core.log.logs",
        old="        self._deleted.intersection_update(self.clean_points)",
        new="        pass",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_logs.py"
        "::test_partitions_that_come_and_go_leave_nothing_in_memory_nor_in_checkpoints",
    ),
    Mutant(
        name="settled-topics-remembered",
        rule="a controller forgets topics with placement constraints that are deleted",
        module="anabranch.core.controller.partitions.observer_placement",
        old="            del self._settled[name]\n",
        new="            pass\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_constraints.py"
        "::test_topics_with_constraints_that_come_and_go_leave_nothing_behind",
    ),
    Mutant(
        name="refusals-of-deleted-topics-counted",
        rule="a topic that is deleted has no counter of refused batches",
        module="anabranch.core.api.context",
        old="        self.failed_produces.pop(topic, None)\n",
        new="        pass\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_produce.py"
        "::test_r19_every_batch_that_is_refused_is_counted",
    ),
    Mutant(
        name="batches-wait-for-a-refused-coordinator",
        rule="what waits for a coordinator that is refused fails at once",
        module="anabranch.core.diskless.broker",
        old="        self.writing.give_up(now_ms)\n",
        new="        pass\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_data_path.py"
        "::test_what_waits_for_a_coordinator_that_is_refused_fails_wherever_it_is",
    ),
    Mutant(
        name="unregistered-brokers-remembered",
        rule="a controller forgets where a broker was registered that is not any more",
        module="anabranch.core.controller.cluster_state",
        old="                self.registration_offsets.pop(record.broker_id, None)\n",
        new="                pass\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/test_what_grows.py"
        "::test_a_controller_holds_no_more_after_topics_and_brokers_have_come_and_gone",
    ),
)
