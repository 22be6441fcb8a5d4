"""Broken rules of diskless storage, each caught by a test that is named.

Not here: how a mutant is made (`mutants.py`), the data path's mutants.
"""

from __future__ import annotations

from anabranch.sim.mutants import Mutant

NO_SCHEDULE = -1
OBJECTS = "anabranch.server.objects"
GARBAGE_ROUND = "anabranch.core.diskless.garbage_round"
TESTS = "tests/server/objects"
CONNECTION = "anabranch.server.connection"
CONNECTION_TESTS = "tests/server/test_connection.py"
OLDER_TESTS = "tests/server/diskless/test_older_copies.py"
OPENING_TESTS = "tests/server/diskless/test_opening.py"
COLLECTING_TESTS = f"{TESTS}/test_collecting.py"

STORAGE = (
    Mutant(
        name="object-replaced",
        rule="an object that exists is never replaced",
        module=f"{OBJECTS}.folder",
        old="            os.link(temporary, place)\n",
        new="            os.replace(temporary, place)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}/test_objects.py::test_an_object_is_never_replaced[folder]",
    ),
    Mutant(
        name="object-s-name-not-synced",
        rule="an object is stored when its folder is synced too",
        module=f"{OBJECTS}.folder",
        old="                os.unlink(temporary)\n        sync_folder(folder)\n",
        new="                os.unlink(temporary)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}/test_folder.py"
        "::test_an_object_has_its_name_when_it_is_synced_and_then_the_folder_is",
    ),
    Mutant(
        name="taken-name-not-synced",
        rule="an object that an earlier attempt named counts as stored when its folder is synced",
        module=f"{OBJECTS}.folder",
        old="            sync_folder(folder)  # an earlier attempt may have failed here\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}/test_folder.py"
        "::test_a_put_that_comes_again_syncs_the_name_that_was_not",
    ),
    Mutant(
        name="taken-name-compared-by-size-alone",
        rule="a put whose name is taken has succeeded when the object is the same, byte for byte",
        module=f"{OBJECTS}.taken",
        old="        if bytes(held) != piece:\n",
        new="        if len(held) != len(piece):\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}/test_objects.py"
        "::test_a_put_that_is_made_again_succeeds_and_one_of_other_bytes_does_not[folder]",
    ),
    Mutant(
        name="crowd-holds-up-the-last-one-alone",
        rule="all connections that bring what waits for a store are held up while it is crowded",
        module=CONNECTION,
        old="            for each in self._bringing:\n",
        new="            for each in (connection,):\n",
        seed=NO_SCHEDULE,
        caught_by=f"{CONNECTION_TESTS}"
        "::test_who_brings_more_than_there_is_room_for_is_not_read_until_there_is",
    ),
    Mutant(
        name="first-to-bring-is-always-first",
        rule="of those held up, who brought something last is read again last",
        module=CONNECTION,
        old="        self._bringing.pop(connection, None)\n        self._bringing[conn",
        new="        self._bringing[conn",
        seed=NO_SCHEDULE,
        caught_by=f"{CONNECTION_TESTS}"
        "::test_of_those_that_are_read_again_the_first_may_take_all_room",
    ),
    Mutant(
        name="all-read-on-though-the-first-took-the-room",
        rule="of those held up, nobody is read again once the ones before took all room",
        module=CONNECTION,
        old="            if connection not in self._held_up:  # the ones before it took all room\n",
        new="            if True:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{CONNECTION_TESTS}"
        "::test_of_those_that_are_read_again_the_first_may_take_all_room",
    ),
    Mutant(
        name="put-ends-like-any-request",
        rule="a put may take as long as all puts of a broker take side by side at a slow store",
        module=f"{OBJECTS}.cloud",
        old="((READ_RETRIES, ATTEMPT_S), (0, PUT_ATTEMPT_S))",
        new="((READ_RETRIES, ATTEMPT_S), (0, ATTEMPT_S))",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}/test_cloud.py::test_a_put_may_take_longer_than_other_requests",
    ),
    Mutant(
        name="segment-rolled-during-a-round-counts-as-synced",
        rule="a segment that is rolled while a round is under way belongs to the next one",
        module="anabranch.core.log.state",
        old="if one[0] > reached or one not in covered\n",
        new="if one[0] > reached\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_syncing.py"
        "::test_what_a_round_said_is_there_after_a_power_cut[1]",
    ),
    Mutant(
        name="torn-time-index-read-as-empty",
        rule="an index file that ends within an entry is torn, also within zeros",
        module="anabranch.core.log.indexes",
        old="        if len(encoded) % TIME_ENTRY_BYTES:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_indexes.py::test_a_torn_time_index_is_refused[2]",
    ),
    Mutant(
        name="index-checksum-not-checked",
        rule="an index whose checksum is wrong is not read",
        module="anabranch.core.diskless.layout",
        old="    if crc != crc32c(held[len(index) + _CRC.size :], crc32c(index)):\n",
        new="    if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_layout.py"
        "::test_any_changed_byte_of_header_index_or_footer_is_noticed",
    ),
    Mutant(
        name="retried-put-owns-any-object",
        rule="a put that finds its name taken succeeds only if the object is what it was to put",
        module=f"{OBJECTS}.cloud",
        old="if await holds(self, key, buffers):",
        new="if attempt > 1:",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}/test_cloud.py"
        "::test_a_put_tried_again_does_not_take_another_s_object_for_its_own[other]",
    ),
    Mutant(
        name="coordinator-made-anew-serves",
        rule="a coordinator that did not name the store's objects is refused",
        module="anabranch.core.diskless.claim",
        old="    if known != mark:\n",
        new="    if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}/test_objects.py"
        "::test_a_coordinator_that_was_made_anew_is_refused_until_it_is_restored[memory]",
    ),
    Mutant(
        name="garbage-without-grace",
        rule="an object that lost its last row stays for the grace",
        module=GARBAGE_ROUND,
        old="FindDeletable(rounds.pace.grace_ms, ",
        new="FindDeletable(0, ",
        seed=NO_SCHEDULE,
        caught_by=f"{COLLECTING_TESTS}::test_an_object_without_rows_goes_after_the_grace",
    ),
    Mutant(
        name="listing-deletes-what-is-prepared",
        rule="a listing deletes no object that the coordinator knows",
        module=GARBAGE_ROUND,
        old="(yield FindUnknown(old)) if old else []",
        new="old",
        seed=NO_SCHEDULE,
        caught_by=f"{COLLECTING_TESTS}::test_what_a_living_broker_has_prepared_is_never_deleted",
    ),
    Mutant(
        name="listing-deletes-of-a-lost-database",
        rule="a listing deletes only objects that this coordinator's database named",
        module=GARBAGE_ROUND,
        old="orphans = [key for key in unknown if is_ours(key, mark)]",
        new="orphans = unknown",
        seed=NO_SCHEDULE,
        caught_by=f"{COLLECTING_TESTS}"
        "::test_an_old_object_that_nobody_knows_goes_when_this_database_named_it",
    ),
    Mutant(
        name="object-forgotten-before-it-is-deleted",
        rule="the coordinator forgets an object when the store has deleted it",
        module=GARBAGE_ROUND,
        old="            gone = set((yield DeleteObjects([key for _, key in waiting])))\n",
        new="            yield ForgetObjects([number for number, _ in waiting])\n"
        "            gone = set((yield DeleteObjects([key for _, key in waiting])))\n",
        seed=NO_SCHEDULE,
        caught_by=f"{COLLECTING_TESTS}::test_a_deletion_that_failed_is_done_again",
    ),
    Mutant(
        name="older-coordinator-serves",
        rule="a coordinator that does not know a noted commit is refused",
        module="anabranch.core.diskless.last_commits",
        old="    if lacking:\n",
        new="    if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{OLDER_TESTS}"
        "::test_any_copy_from_before_a_noted_commit_is_refused_and_any_later_one_is_not",
    ),
    Mutant(
        name="names-of-an-older-coordinator-not-looked-for",
        rule="a coordinator that has not given the name of an object in the store is refused",
        module="anabranch.server.diskless.stores",
        old="            await check_names(objects, coordinator, cluster_id, mark)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{OLDER_TESTS}"
        "::test_a_copy_from_before_the_name_of_a_stored_object_is_refused_without_any_note",
    ),
    Mutant(
        name="names-given-meanwhile-refuse-the-start",
        rule="a name that a coordinator at work has just given is no sign of an older copy",
        module=f"{OBJECTS}.checking",
        old="check_given(present, await coordinator.last_id(), store.url)",
        new="check_given(present, min(present) - 1, store.url)",
        seed=NO_SCHEDULE,
        caught_by=f"{OLDER_TESTS}"
        "::test_names_that_are_given_while_it_is_looked_for_them_are_no_reason",
    ),
    Mutant(
        name="prepared-counts-as-committed",
        rule="an object that is only prepared is not committed, whatever a broker noted",
        module="anabranch.core.diskless.commit",
        old="    return state in (ObjectState.PREPARED, ObjectState.REFUSED)\n",
        new="    return state is ObjectState.REFUSED\n",
        seed=NO_SCHEDULE,
        caught_by="tests/server/coordinator/test_any_coordinator.py"
        "::test_what_was_committed_is_told_from_what_never_was[memory]",
    ),
    Mutant(
        name="store-that-is-away-refuses-the-start",
        rule="a node starts while its diskless stores do not answer",
        module="anabranch.server.diskless.opening",
        old="        if done and not isinstance(fault, ObjectsAway | CoordinatorAway):\n",
        new="        if done:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{OPENING_TESTS}"
        "::test_what_is_found_wrong_after_the_start_is_said_and_tried_again",
    ),
    Mutant(
        name="own-change-before-another-s",
        rule="changes of this process and of others are heard in order",
        module="anabranch.server.coordinator.sqlite",
        old="            if own.before == counter:\n",
        new="            if True:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/server/coordinator/test_sqlite.py"
        "::test_own_changes_are_heard_without_reading_and_others_in_order[aoo]",
    ),
)
"""Rules of the stores, of the object format and of garbage: no schedule has a store yet."""
