"""Broken rules of the metadata log: its replay, its copies, its stores."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

COPY = "anabranch.core.metadata.following.copy"
CONTROLLER = "tests/core/controller/test_managed_reconciler.py"
TOPICS = "anabranch.core.metadata.concerns.topics"

MUTANTS = (
    Mutant(
        name="leader-epoch-not-raised",
        rule="every election raises the leader epoch",
        module=TOPICS,
        old='changes["leader_epoch"] = old.leader_epoch + 1',
        new='changes["leader_epoch"] = old.leader_epoch',
        seed=1,
        caught_by="M5",
    ),
    Mutant(
        name="snapshot-of-a-copy-not-synced",
        rule="a snapshot of a copy of the metadata is on the disk before log is removed for it",
        module=COPY,
        old=(
            'checkpoint_name(image.next_offset, image.epoch)}"\n'
            "        self.files.write_atomic(name, payload, sync=True)\n"
        ),
        new=(
            'checkpoint_name(image.next_offset, image.epoch)}"\n'
            "        self.files.write_atomic(name, payload, sync=False)\n"
        ),
        seed=27,
        caught_by="M6",
    ),
    Mutant(
        name="folder-of-a-copy-not-synced",
        rule="the folder of a copy of the metadata is on the disk before a snapshot in it counts",
        module=COPY,
        old="            files.sync_dir(metadata_log_dir)",
        new="            pass",
        seed=30,
        caught_by="M6",
    ),
    Mutant(
        name="store-that-ends-with-the-copy-counts-as-older",
        rule="a node goes on if the store ends where the node's copy of the metadata does",
        module="anabranch.core.metadata.store_check",
        old="    if end_offset < copy.end_offset:",
        new="    if end_offset <= copy.end_offset:",
        seed=22,
        caught_by="T5",
    ),
    Mutant(
        name="store-asks-for-no-room",
        rule="a SQLite store on a full disk frees its reserve and tries again",
        module="anabranch.stores.metadata.sqlite",
        old="            if not self.make_room(fault):\n",
        new="            if True:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/stores/metadata/test_full_volume.py"
        "::test_an_append_for_which_room_is_made_is_committed_once",
    ),
    Mutant(
        name="append-by-who-had-the-epoch-before",
        rule="of two controllers with one epoch from a restored store, only one appends",
        module="anabranch.core.metadata.store",
        old="return mine == (present.epoch, present.holder, present.incarnation)",
        new="return mine[0] == present.epoch",
        seed=NO_SCHEDULE,
        caught_by="tests/stores/metadata/test_any_store.py"
        "::test_no_backup_lets_two_append_under_one_epoch[sqlite]",
    ),
    Mutant(
        name="older-snapshot-loaded",
        rule="a copy of the metadata is never replaced by an older snapshot",
        module="anabranch.core.metadata.store_check",
        old="if min(end_offset, snapshot_end) < copy.end_offset:",
        new="if end_offset < 0:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_store_check.py::test_no_snapshot_takes_a_copy_back",
    ),
    Mutant(
        name="metadata-is-not-tried-again",
        rule="metadata that a full disk refuses is written into the reserve",
        module="anabranch.core.metadata.following.following",
        old="if not event.is_made:",
        new="if True:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py"
        "::test_what_does_not_fit_is_written_into_what_is_given_back",
    ),
    Mutant(
        name="copy-longer-than-the-store-goes-on",
        rule="a node stops if the store ends before the node's copy of the metadata",
        module="anabranch.core.metadata.store_check",
        old="    if end_offset < copy.end_offset:",
        new="    if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py"
        "::test_a_store_that_went_back_stops_the_node",
    ),
    Mutant(
        name="own-registration-not-awaited",
        rule="a broker acts only on metadata that shows the registration of its own process",
        module="anabranch.core.metadata.following.following",
        old="if own is not None and own.epoch == self._broker_epoch:",
        new="if own is not None:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py"
        "::test_a_broker_acts_from_its_own_registration_on",
    ),
    Mutant(
        name="old-metadata-told-without-the-store",
        rule="who has seen more than a controller is told nothing before the lease is confirmed",
        module="anabranch.core.api.fetch_metadata",
        old="if not controller.is_doubt_settled and (",
        new="if False and (",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py"
        "::test_a_controller_that_lost_its_lease_stops_no_node[0-new connection]",
    ),
    Mutant(
        name="diverging-epoch-overlooked",
        rule="a metadata log that diverges under a live connection stops the node",
        module="anabranch.core.metadata.following.following",
        old="        if answer.diverging_epoch.epoch >= 0:",
        new="        if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py::test_a_diverging_epoch_stops_the_node",
    ),
    Mutant(
        name="snapshot-tells-only-what-is-there",
        rule="loading a snapshot also reports what was deleted",
        module="anabranch.core.metadata.following.following",
        old="self._publish(difference(before, self.copy.image))",
        new="self._publish(everything(self.copy.image))",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py"
        "::test_a_loaded_snapshot_tells_of_what_was_deleted",
    ),
    Mutant(
        name="snapshot-due-meanwhile-waits-for-a-commit",
        rule="a snapshot of a copy that became due during another is written after it",
        module="anabranch.core.metadata.following.following",
        old='not trimmed", str(fault)))\n        self._write_snapshot_if_due()\n',
        new='not trimmed", str(fault)))\n',
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py"
        "::test_a_snapshot_that_became_due_meanwhile_is_written_when_the_other_ends",
    ),
    Mutant(
        name="back-and-still-gone",
        rule="a broker that has returned no longer counts as absent",
        module="anabranch.core.metadata.concerns.absences",
        old='        del builder.changing("absences")[broker_id]\n',
        new="        pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{CONTROLLER}::test_a_rack_that_blinks_keeps_everything",
    ),
    Mutant(
        name="passing-topic-forgotten",
        rule="a topic that was created and deleted before a broker acts has gone as others have",
        module="anabranch.core.metadata.following.following",
        old="for topic in (*delta.deleted_topics, *delta.passing_topics):",
        new="for topic in delta.deleted_topics:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py"
        "::test_a_broker_hears_which_topics_went_before_it_acts[False-False]",
    ),
    Mutant(
        name="collector-walks-what-a-snapshot-makes",
        rule="a snapshot is read without the garbage collector",
        module="anabranch.server.collector",
        old="            gc.disable()\n",
        new="            pass\n",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_collector.py::test_a_snapshot_is_read_without_it_as_with_it",
    ),
)
