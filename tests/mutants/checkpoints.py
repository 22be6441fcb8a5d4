"""Broken rules of combining manifests."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

COMBINING = "anabranch.core.diskless.combination"
SIMULATED = "tests/sim/test_combination.py::test_a_restore_is_exact_whatever_fails"
DIRECT = "tests/core/diskless/test_combination.py"

MUTANTS = (
    Mutant(
        name="manifests-deleted-on-one-checkpoint",
        rule="a manifest is deleted once two sound checkpoints have it",
        module=COMBINING,
        old="            if len(have) == CHECKPOINTS_KEPT and all(have):\n",
        new="            if any(have[:1]):\n",
        seed=NO_SCHEDULE,
        caught_by=f"{SIMULATED}[0]",
    ),
    Mutant(
        name="starts-of-other-brokers-not-noted",
        rule="every broker notes the starts that its watch tells, whoever moved them",
        module="anabranch.core.diskless.manifests",
        old="            elif (state.start_offset or state.tiered_end) and not runs:\n",
        new="            elif False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{SIMULATED}[0]",
    ),
    Mutant(
        name="ends-of-deleted-records-forgotten",
        rule="a checkpoint keeps where a partition ends whose records are deleted",
        module=COMBINING,
        old="            self._raise_start(batch.key, base_offset + batch.record_count)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{DIRECT}::test_an_empty_partition_keeps_its_end_when_no_manifest_has_it",
    ),
    Mutant(
        name="producers-of-parts-replace-others",
        rule="what a checkpoint says of a producer is joined with what is known already",
        module=COMBINING,
        old="                self._know(known)\n",
        new="                self._producers[known.key] = known\n",
        seed=NO_SCHEDULE,
        caught_by=f"{SIMULATED}[0]",
    ),
    Mutant(
        name="unlisted-manifests-count-as-combined",
        rule="a manifest that was not read is not deleted",
        module=COMBINING,
        old="Writer(*each, upto, _without(open_ranges, numbers))",
        new="Writer(*each, upto, [])",
        seed=NO_SCHEDULE,
        caught_by=f"{SIMULATED}[3]",
    ),
    Mutant(
        name="parts-of-checkpoints-unchecked",
        rule="a checkpoint counts only if all its parts are what was written",
        module=COMBINING,
        old="                for name in root.parts:\n",
        new="                for name in root.parts[:0]:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DIRECT}::test_a_damaged_checkpoint_is_replaced_and_costs_nothing",
    ),
    Mutant(
        name="ids-of-deleted-objects-forgotten",
        rule="object ids go on after those of objects that are gone",
        module=COMBINING,
        old="            self._last_object_id = base.last_object_id\n",
        new="            pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DIRECT}::test_ids_go_on_after_objects_that_are_gone",
    ),
    Mutant(
        name="unknown-objects-not-compared-with-starts",
        rule="the note of an object goes only if all its records lie before the partition's start",
        module=COMBINING,
        old="            if state is not None and base_offset + batch.record_count"
        " > state.start_offset:\n",
        new="            if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DIRECT}::test_an_object_whose_records_are_not_deleted_keeps_its_note",
    ),
    Mutant(
        name="damaged-checkpoints-replaced-without-their-manifests",
        rule="while no checkpoint is whole, none is made that would hide what is gone",
        module=COMBINING,
        old="        check_replaced([each.key for each in roots], damage[0])\n",
        new="        pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DIRECT}::test_nothing_is_combined_while_no_checkpoint_is_whole[0]",
    ),
    Mutant(
        name="manifests-deleted-before-older-checkpoints",
        rule="a checkpoint that is in the store has all that was deleted because of others",
        module=COMBINING,
        old="    yield from _delete(outdated(roots, parts, whole, maker, "
        "clocks.wall_ms - pace.part_ms))\n    yield from _delete(found.spent)\n",
        new="    yield from _delete(found.spent)\n    yield from _delete(outdated(roots, parts, "
        "whole, maker, clocks.wall_ms - pace.part_ms))\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DIRECT}::test_older_checkpoints_go_before_manifests",
    ),
    Mutant(
        name="older-coordinator-believed",
        rule="a coordinator that has not given all ids in manifests does not say what is gone",
        module=COMBINING,
        old="    if root.last_object_id > last_id:\n",
        new="    if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DIRECT}::test_a_coordinator_that_is_older_than_manifests_is_not_believed",
    ),
    Mutant(
        name="names-of-manifests-used-twice",
        rule="a checkpoint does not contain a manifest that came after it",
        module=COMBINING,
        old=" and listed.modified_ms <= stored_ms\n",
        new="\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DIRECT}::"
        "test_a_manifest_that_came_after_a_checkpoint_is_not_in_it_whatever_its_name",
    ),
    Mutant(
        name="newer-checkpoints-passed-over",
        rule="a checkpoint of a newer version is refused, and nothing is deleted",
        module="anabranch.core.diskless.checkpoints",
        old="        raise NewerCheckpoint(\n",
        new="        raise DamagedObject(\n            place,\n            8,\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DIRECT}::test_a_format_that_is_not_known_is_refused",
    ),
)
