"""Broken rules of a controller's term: its lease, its appends, its snapshots."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

TENURE = "anabranch.core.controller.tenure"

MUTANTS = (
    Mutant(
        name="deposed-controller-acknowledges",
        rule="a controller acknowledges nothing before the store has confirmed its lease",
        module="anabranch.core.controller.tenure.decisions",
        old="        if needed == before and not result.is_routine:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_tenure.py::test_who_was_deposed_acknowledges_nothing[False-False-False]",
    ),
    Mutant(
        name="unknown-append-taken-for-committed",
        rule="after an append of unknown outcome a controller resigns and reads again",
        module=f"{TENURE}.term",
        old="        if not isinstance(event.outcome, Committed):\n            self.resign(",
        new='        if hasattr(event.outcome, "epoch"):\n            self.resign(',
        seed=4000000032,
        caught_by="T2",
    ),
    Mutant(
        name="answers-leave-before-the-commit",
        rule="an answer is sent when everything that it depends on is committed",
        module=f"{TENURE}.decisions",
        old="if self._controller.log.end_offset >= answer.offset:",
        new="if True:",
        seed=0,
        caught_by="T2",
    ),
    Mutant(
        name="answers-wait-for-decisions-that-follow",
        rule="only decisions that nobody waits for are held back to share an append",
        module=f"{TENURE}.decisions",
        old="            self._due_ms = min(self._due_ms, now_ms)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_tenure.py"
        "::test_nobody_waits_for_decisions_of_which_more_follow[False]",
    ),
    Mutant(
        name="suspended-holder-goes-on",
        rule="a holder whose lease was not confirmed in time resigns before it answers anything",
        module=f"{TENURE}.lease",
        old="return now_ms - self.confirmed_ms > timing.lease_timeout_ms",
        new="return False",
        seed=7,
        caught_by="T1",
    ),
    Mutant(
        name="store-that-went-back-is-written-to",
        rule="a node stops if the store is older than what the node has seen",
        module=f"{TENURE}.takeover",
        old="if first >= self._store_age.seen_end:",
        new="if True:",
        seed=23,
        caught_by="T4",
    ),
    Mutant(
        name="holder-ignores-the-controller-that-its-node-follows",
        rule="a holder whose node follows a newer controller resigns",
        module=f"{TENURE}.tenure",
        old="self.controller.followed.epoch > self.controller.epoch:",
        new="False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_tenure.py"
        "::test_a_controller_whose_node_follows_a_newer_one_resigns",
    ),
    Mutant(
        name="lease-not-compared-with-what-was-followed",
        rule="a lease older than the metadata that a node follows shows a store that went back",
        module=f"{TENURE}.lease",
        old="max(self.newest_epoch, followed_epoch)",
        new="self.newest_epoch",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_tenure.py"
        "::test_a_lease_of_an_older_epoch_than_what_was_followed[True]",
    ),
    Mutant(
        name="confirmed-lease-ignores-when-it-was-asked",
        rule="the time of a lease counts from the request for its confirmation",
        module=f"{TENURE}.term",
        old="state.held.confirm(event.asked.asked_ms)",
        new="state.held.confirm(now_ms)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_tenure.py"
        "::test_a_confirmation_counts_from_when_it_was_asked_for",
    ),
    Mutant(
        name="snapshot-of-uncommitted-state",
        rule="a snapshot of the metadata holds only what is committed",
        module=f"{TENURE}.snapshots",
        old="self._committed = image\n        self._write_if_due(",
        new="self._committed = self._controller.image\n        self._write_if_due(",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_tenure.py"
        "::test_a_snapshot_holds_nothing_that_is_decided_and_not_committed",
    ),
    Mutant(
        name="stored-snapshot-due-meanwhile-waits-for-a-commit",
        rule="a stored snapshot that became due during another is written after it",
        module=f"{TENURE}.snapshots",
        old="if self._committed.next_offset > end_offset:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_tenure.py"
        "::test_a_snapshot_that_became_due_meanwhile_is_written_when_the_other_ends",
    ),
    Mutant(
        name="what-came-during-a-snapshot-does-not-count",
        rule="records that come while a snapshot is stored count for the next one",
        module="anabranch.core.metadata.committed_log",
        old="self.bytes_since_snapshot = self.bytes_after(snapshot.end_offset)",
        new="self.bytes_since_snapshot = 0",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_tenure.py"
        "::test_what_came_while_a_snapshot_was_stored_counts_for_the_next",
    ),
)
