"""Broken rules of settings that change while a cluster works, or are spelled in another way."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SETTING = "anabranch.core.settings.setting"
HOSTING = "anabranch.core.broker.hosting.hosting"

MUTANTS = (
    Mutant(
        name="follower-refuses-what-a-segment-cannot-hold",
        rule="a follower takes a batch that is larger than segment.bytes is now",
        module="anabranch.core.log.appends",
        old="    size = len(view)\n    _, last_header, last_base, newest = entries[-1]\n",
        new="    size = len(view)\n"
        "    if size > log.config.segment_bytes:\n"
        '        raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, "too large")\n'
        "    _, last_header, last_base, newest = entries[-1]\n",
        seed=1149,
        caught_by="liveness",
    ),
    Mutant(
        name="boolean-read-as-raw-text",
        rule="a boolean is true whatever the case of its letters",
        module=SETTING,
        old='return text is not None and text.strip().lower() == "true"',
        new='return text == "true"',
        seed=1020,
        caught_by="S1",
    ),
    Mutant(
        name="list-read-as-raw-text",
        rule="blanks around the entries of a list count for nothing",
        module=SETTING,
        old="return tuple(LIST_SEPARATOR.split(text)) if text else ()",
        new='return tuple(text.split(",")) if text else ()',
        seed=1052,
        caught_by="S1",
    ),
    Mutant(
        name="retention-without-its-policy",
        rule="records expire by age only where cleanup.policy deletes",
        module="anabranch.core.log.truncation",
        old="if not log.config.deletes or log.config.retention_ms < 0:",
        new="if log.config.retention_ms < 0:",
        seed=1000001084,
        caught_by="L6",
    ),
    Mutant(
        name="brokers-default-does-not-reach-logs",
        rule="a log follows a change of the brokers' defaults",
        module=HOSTING,
        old="            return list(self._partitions)\n",
        new="            return []\n",
        seed=1004,
        caught_by="S3",
    ),
    Mutant(
        name="setting-that-is-taken-back-stays",
        rule="a setting that was deleted has its default again",
        module="anabranch.core.metadata.concerns.configs",
        old="    elif record.name in values:\n",
        new="    elif record.name in values and record.resource_type == 4:\n",
        seed=1004,
        caught_by="S3",
    ),
)
