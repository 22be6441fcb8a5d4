"""Broken rules of the project's own client."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

LANES = "anabranch.client.lanes"
LANE_TESTS = "tests/client/test_lanes.py"

MUTANTS = (
    Mutant(
        name="aborted-beyond-its-marker",
        rule="an aborted transaction hides no records after its marker",
        module="anabranch.client.committed",
        old="self._aborting.pop(header.producer_id, None)",
        new="pass",
        seed=NO_SCHEDULE,
        caught_by="tests/client/test_committed.py"
        "::test_what_was_committed_is_seen_and_nothing_else",
    ),
    Mutant(
        name="reads-another-topic-of-the-name",
        rule="a range is read from the topic that it was counted in",
        module="anabranch.client.ranges",
        old="if known and topic.topic_id != self.topic_id:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/client/test_ranges.py::test_another_topic_of_the_same_name_is_not_read",
    ),
    Mutant(
        name="reads-past-what-was-deleted",
        rule="a read of deleted offsets reports them, and where reading can continue",
        module="anabranch.client.ranges",
        old="resume_at = first if first < self.until else None",
        new="resume_at = None",
        seed=NO_SCHEDULE,
        caught_by="tests/client/test_ranges.py::test_deleted_offsets_are_named_with_where_to_go_on",
    ),
    Mutant(
        name="producer-hurries-after-a-failure",
        rule="a producer retries one batch at a time, so that the broker still recognises it",
        module=LANES,
        old="self._unsure = max(self._unsure + kept - len(outcomes), kept)",
        new="self._unsure = 0",
        seed=NO_SCHEDULE,
        caught_by=f"{LANE_TESTS}::test_every_record_is_written_once_and_in_order_whatever_goes_wrong",
    ),
    Mutant(
        name="producer-begins-with-several-batches",
        rule="a producer sends its first batch alone, because a broker accepts any first number",
        module=LANES,
        old="self._unsure = 1\n",
        new="self._unsure = 0\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LANE_TESTS}::test_every_record_is_written_once_and_in_order_whatever_goes_wrong",
    ),
    Mutant(
        name="producer-takes-a-duplicate-for-a-failure",
        rule="a batch that a broker has already is acknowledged",
        module=LANES,
        old="if fault.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:",
        new="if True:",
        seed=NO_SCHEDULE,
        caught_by=f"{LANE_TESTS}::test_every_record_is_written_once_and_in_order_whatever_goes_wrong",
    ),
)
