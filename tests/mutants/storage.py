"""Broken rules of object stores, of the heap, and of files that answers are sent from."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

OBJECTS = "anabranch.stores.objects"
OBJECT_TESTS = "tests/stores/objects"
OLDER_TESTS = "tests/server/diskless/test_older_copies.py"
OPENING_TESTS = "tests/server/diskless/test_startup.py"
LOANS = "tests/server/test_loans.py"

MUTANTS = (
    Mutant(
        name="object-replaced",
        rule="an object that exists is never replaced",
        module=f"{OBJECTS}.folder",
        old="            os.link(temporary, place)\n",
        new="            os.replace(temporary, place)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{OBJECT_TESTS}/test_objects.py::test_an_object_is_never_replaced[folder]",
    ),
    Mutant(
        name="large-object-replaced",
        rule="a large object that exists is never replaced",
        module=f"{OBJECTS}.cloud",
        old="incomplete, key, overwrite=False)",
        new="incomplete, key, overwrite=True)",
        seed=NO_SCHEDULE,
        caught_by=f"{OBJECT_TESTS}/test_large_objects.py"
        "::test_a_large_put_that_ends_after_another_is_refused[s3]",
    ),
    Mutant(
        name="large-object-of-another-size",
        rule="a large object has as many bytes as its source said that it would",
        module=f"{OBJECTS}.existing_object",
        old="    if left:\n",
        new="    if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{OBJECT_TESTS}/test_large_objects.py"
        "::test_a_source_that_gives_less_or_more_stores_nothing[folder--1]",
    ),
    Mutant(
        name="large-object-not-synced",
        rule="each piece of a large object is synced before the object has its name",
        module=f"{OBJECTS}.folder",
        old="            rest, position = rest[written:], position + written\n        os.fsync(handle)\n",
        new="            rest, position = rest[written:], position + written\n",
        seed=NO_SCHEDULE,
        caught_by=f"{OBJECT_TESTS}/test_folder.py"
        "::test_a_large_object_is_synced_before_it_has_its_name",
    ),
    Mutant(
        name="object-name-not-synced",
        rule="an object is stored after its folder has been synced, too",
        module=f"{OBJECTS}.folder",
        old="            _remove(temporary)\n        sync_folder(folder)\n",
        new="            _remove(temporary)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{OBJECT_TESTS}/test_folder.py"
        "::test_an_object_has_its_name_when_it_is_synced_and_then_the_folder_is",
    ),
    Mutant(
        name="taken-name-not-synced",
        rule="an object that an earlier attempt named is stored after its folder has been synced",
        module=f"{OBJECTS}.folder",
        old="            sync_folder(folder)  # an earlier attempt may have failed here\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{OBJECT_TESTS}/test_folder.py"
        "::test_a_put_that_comes_again_syncs_the_name_that_was_not",
    ),
    Mutant(
        name="taken-name-compared-by-size-alone",
        rule="a put under a taken name succeeds only if the object is the same, byte for byte",
        module=f"{OBJECTS}.existing_object",
        old="        if bytes(held) != piece:\n",
        new="        if len(held) != len(piece):\n",
        seed=NO_SCHEDULE,
        caught_by=f"{OBJECT_TESTS}/test_objects.py"
        "::test_a_put_that_is_made_again_succeeds_and_one_of_other_bytes_does_not[folder]",
    ),
    Mutant(
        name="retried-put-owns-any-object",
        rule="a retried put succeeds only if the object under its name is its own",
        module=f"{OBJECTS}.cloud",
        old="if await holds(self, key, buffers):",
        new="if attempt > 1:",
        seed=NO_SCHEDULE,
        caught_by=f"{OBJECT_TESTS}/test_cloud.py"
        "::test_a_put_tried_again_does_not_take_another_s_object_for_its_own[other]",
    ),
    Mutant(
        name="names-of-an-older-coordinator-not-looked-for",
        rule="a coordinator is refused if the store has an object whose name it has not assigned",
        module="anabranch.server.diskless.stores",
        old="            await check_names(objects, coordinator, cluster_id, mark)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{OLDER_TESTS}"
        "::test_a_copy_from_before_the_name_of_a_stored_object_is_refused_without_any_note",
    ),
    Mutant(
        name="names-given-meanwhile-refuse-the-start",
        rule="a name that a running coordinator has just assigned is no sign of an older copy",
        module=f"{OBJECTS}.store_check",
        old="check_given(present, await coordinator.last_id(), store.url)",
        new="check_given(present, min(present) - 1, store.url)",
        seed=NO_SCHEDULE,
        caught_by=f"{OLDER_TESTS}"
        "::test_names_that_are_given_while_it_is_looked_for_them_are_no_reason",
    ),
    Mutant(
        name="claim-made-meanwhile-refuses-the-start",
        rule="a store that another node of the cluster has just claimed is no other store",
        module=f"{OBJECTS}.store_check",
        old="""    last_id, known = await coordinator.last_id(), await coordinator.store("")
    here = await _claimed(store, cluster_id, setting)
""",
        new="""    here = await _claimed(store, cluster_id, setting)
    last_id, known = await coordinator.last_id(), await coordinator.store("")
""",
        seed=NO_SCHEDULE,
        caught_by="tests/stores/objects/test_claims.py"
        "::test_a_claim_that_another_node_makes_meanwhile_is_no_reason",
    ),
    Mutant(
        name="store-that-is-away-refuses-the-start",
        rule="a node starts even if its diskless stores do not answer",
        module="anabranch.server.diskless.startup",
        old="        if done and not isinstance(fault, ObjectsAway | CoordinatorAway):\n",
        new="        if done:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{OPENING_TESTS}"
        "::test_what_is_found_wrong_after_the_start_is_an_error_and_tried_again",
    ),
    Mutant(
        name="lent-bytes-cut-in-place",
        rule="what was lent of a file stays as it was when the file is truncated",
        module="anabranch.server.files",
        old="            if size >= self.lent_end:\n",
        new="            if size >= 0:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOANS}::test_what_was_lent_outlives_a_truncation_and_what_follows_it",
    ),
    Mutant(
        name="what-is-not-in-memory-is-lent",
        rule="only bytes that are in the page cache are lent, so that sending waits for no disk",
        module="anabranch.server.loans",
        old="        if not self.is_in_memory(handle, position, length):\n",
        new="        if self._call is None:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOANS}::test_what_is_not_in_memory_is_not_lent",
    ),
    Mutant(
        name="followers-are-lent-records",
        rule="a follower's records are read, since they may yet be truncated",
        module="anabranch.core.api.fetch_pass",
        old="read = replica.read if self.is_follower else replica.lend",
        new="read = replica.lend",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_lent_records.py"
        "::test_a_follower_s_are_read_since_they_may_yet_be_truncated",
    ),
    Mutant(
        name="lent-records-without-their-aborted-transactions",
        rule="readers of committed records are told of each transaction that was aborted",
        module="anabranch.core.api.fetch_history",
        old="        ranges = partition.aborted_transactions(offset, end)\n",
        new="        ranges = []\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_lent_records.py"
        "::test_what_is_lent_is_told_with_the_transactions_that_were_aborted_in_it",
    ),
    Mutant(
        name="lent-answers-overtake",
        rule="an answer that is sent past the transport waits for what the transport has to send",
        module="anabranch.server.link",
        old="if not self.lends or self._transport.get_write_buffer_size():",
        new="if not self.lends:",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_loan_sender.py"
        "::test_what_the_transport_has_yet_to_send_is_not_overtaken",
    ),
)
