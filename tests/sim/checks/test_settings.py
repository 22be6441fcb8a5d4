"""What altered settings allow, and what they no longer allow, by what each node knew at the time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.core.log.compacting import compact
from tests.core.log.support import sync
from tests.sim.checks.stage import KEY, PLACE, TOPIC_ID, Stage

from anabranch.core.errors import ErrorCode
from anabranch.core.log.config import LogConfig
from anabranch.core.wire.metadata_records import ConfigRecord, TopicRecord
from anabranch.sim.checks import liveness
from anabranch.sim.checks.model import deletes, entries, means_true
from anabranch.sim.checks.settings import SettingsChecks
from anabranch.sim.checks.violation import Violation
from anabranch.sim.plan_parts import Alteration
from anabranch.sim.settings_plan import APPEND, DELETE, DISKLESS, SET, SUBTRACT

BROKERS = ""


def violated(act: Any) -> str:
    with pytest.raises(Violation) as caught:
        act()
    return caught.value.id


def setting(name: str, value: str | None, topic: str = "t") -> ConfigRecord:
    kind = 4 if topic == BROKERS else 2
    return ConfigRecord(resource_type=kind, resource_name=topic, name=name, value=value)


def expiring(stage: Stage) -> Stage:
    """Three records that everybody has, and nobody has asked to delete any."""
    stage.write(3)
    stage.logs.deletes_asked.clear()
    return stage


# What a log may drop.


def test_records_expire_while_retention_is_on_and_not_after_that():
    stage = expiring(Stage())
    stage.commit(setting("retention.ms", "1000"))
    stage.follow(1, 2, 3)
    stage.log(1).delete_records_before(1)
    stage.look(1)
    stage.commit(setting("retention.ms", None))
    stage.follow(1, 2)
    stage.log(2).delete_records_before(1)  # the leader's log begins there
    stage.look(2)
    stage.log(3).delete_records_before(2)  # it has not heard yet
    stage.look(3)
    stage.log(1).delete_records_before(2)
    stage.look(1)
    stage.log(1).delete_records_before(3)
    assert violated(lambda: stage.look(1)) == "L6"


@pytest.mark.parametrize(
    ("changes", "drops"),
    [
        ([setting("log.retention.ms", " 1000", BROKERS)], True),
        ([setting("log.retention.bytes", "300", BROKERS)], True),
        ([setting("retention.ms", "-1"), setting("log.retention.ms", "9", BROKERS)], False),
        ([setting("retention.ms", "604800000")], False),
        ([setting("retention.bytes", "1"), setting("cleanup.policy", "compact")], False),
        ([setting("retention.bytes", "1"), setting("cleanup.policy", "")], False),
        ([setting("retention.bytes", "1"), setting("cleanup.policy", " compact , delete")], True),
        ([setting("retention.ms", "1"), setting("log.cleanup.policy", "compact", BROKERS)], False),
    ],
)
def test_what_a_node_knows_says_whether_its_logs_drop_records(changes, drops):
    stage = expiring(Stage())
    stage.commit(*changes)
    stage.follow(1)
    stage.log(1).delete_records_before(1)
    if drops:
        stage.look(1)
        assert stage.marks["records-expired"] == 1
    else:
        assert violated(lambda: stage.look(1)) == "L6"


def test_a_setting_that_was_on_and_off_in_one_event_counts():
    stage = expiring(Stage())
    stage.commit(setting("retention.ms", "1000"))
    stage.commit(setting("retention.ms", None))
    stage.nodes[1].broker.image = stage.image
    stage.log(1).delete_records_before(1)
    stage.look(1)


# Compaction.


def compacting(policy: str = "compact", stays_ms: int = 0) -> Stage:
    """A topic whose keys have older records; passes are counted."""
    stage = Stage(cleanup_policy=policy, delete_retention_ms=str(stays_ms))
    stage.logs.compacted_logs[KEY].installed_upto = 0
    for key in (b"a", b"b", b"a", b"b"):
        stage.append(1, key=key)
    stage.append(1, key=b"b", tombstone=True)
    stage.append(1, key=b"c")
    stage.share(1, 2, 3)
    return stage


def begin(stage: Stage, node_id: int = 1) -> None:
    stage.logs.compacts(stage.nodes[node_id], PLACE, None)


def install(stage: Stage, *, now_ms: int = 0, stays_ms: int = 0, node_id: int = 1) -> None:
    """A pass exchanges segments, by the setting that the log has."""
    log, node = stage.log(node_id), stage.nodes[node_id]
    log.config = LogConfig(delete_retention_ms=stays_ms, cleanup_policy=("compact",))
    log.roll(now_ms)
    sync(log)
    stage.logs.compacts(node, PLACE, log.end_offset)
    upto = compact(log, now_ms)
    node.now_ms = now_ms
    stage.logs.compacted(node, PLACE, upto)
    stage.look(node_id)


def test_c7_a_pass_that_begins_when_the_policy_compacts_no_longer():
    stage = compacting()
    begin(stage)
    stage.commit(setting("cleanup.policy", "delete"))
    stage.follow(1)
    install(stage)  # that pass had begun before
    begin(stage)
    assert violated(lambda: install(stage)) == "C7"


def test_c7_the_brokers_default_counts_where_a_topic_has_no_policy():
    stage = compacting()
    stage.commit(
        setting("cleanup.policy", None), setting("log.cleanup.policy", "delete,compact", BROKERS)
    )
    stage.follow(1)
    begin(stage)
    install(stage)
    stage.commit(setting("log.cleanup.policy", "delete", BROKERS))
    stage.follow(1)
    begin(stage)
    assert violated(lambda: install(stage)) == "C7"


def test_c4_records_that_are_gone_where_no_pass_has_been():
    stage = compacting()
    log, node = stage.log(1), stage.nodes[1]
    log.roll(0)
    sync(log)
    upto = compact(log, 0)
    stage.logs.compacted(node, PLACE, upto)
    assert violated(lambda: stage.look(1)) == "C4"


@pytest.mark.parametrize(("is_known", "found"), [(True, ""), (False, "C2")])
def test_c2_a_tombstone_stays_as_long_as_its_pass_was_told(is_known, found):
    """`delete.retention.ms` was 0 when the horizon was written, and is a minute when it goes."""
    stage = compacting(stays_ms=0 if is_known else 60_000)
    begin(stage)
    install(stage, stays_ms=0)
    stage.commit(setting("delete.retention.ms", "60000"))
    stage.follow(1)
    begin(stage)
    if found:
        assert violated(lambda: install(stage, now_ms=10, stays_ms=0)) == found
    else:
        install(stage, now_ms=10, stays_ms=60_000)


# Who may lead.


@pytest.mark.parametrize(
    ("text", "allowed"), [(" TRUE", True), ("tRuE\t", True), ("False", False), ("", False)]
)
def test_nobody_leads_at_rest_though_an_unclean_election_is_allowed(text, allowed):
    stage = Stage(unclean_leader_election_enable=text)
    stage.commit(
        stage.changed(leader=-1, isr=[], eligible_leader_replicas=[], last_known_elr=[1]),
        stage.fence(1),
    )
    key, partition = KEY, stage.metadata.model.partitions[KEY]
    for node in stage.nodes.values():
        node.broker.partitions.offline = {}
    cluster: Any = SimpleNamespace(nodes=stage.nodes)
    wrong = liveness._partition_unrest(cluster, stage.logs, key, partition)
    assert ("no leader" in wrong) == allowed
    assert stage.marks["offline-for-good"] == (not allowed)


# The checks of settings.


class Asking:
    """An operator's changes, and what a controller makes of them."""

    def __init__(self, *planned: Alteration) -> None:
        self.stage = Stage()
        self.near = False
        plan: Any = SimpleNamespace(alterations=planned, topics=(), diskless=None)
        self.checks = SettingsChecks(self.stage.metadata, self.stage.marks, plan, lambda: self.near)

    def answer(
        self,
        wanted: Alteration,
        *made: ConfigRecord,
        code: ErrorCode = ErrorCode.NONE,
    ) -> None:
        """One change: what is committed, and what the operator hears."""
        hears = self.checks.asked(wanted)
        if made:
            self.stage.commit(*made)
        said = SimpleNamespace(error_code=code, error_message="")
        hears(SimpleNamespace(responses=[said]))


def wanted(name: str, value: str | None, how: int = SET, **more: Any) -> Alteration:
    return Alteration(0, "t", name, how, value, **more)


def test_s1_a_right_change_that_is_refused():
    asking = Asking()
    change = wanted("retention.ms", " 1000")
    asking.answer(change, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    refused = lambda: asking.answer(change, code=ErrorCode.INVALID_CONFIG)  # noqa: E731
    assert violated(refused) == "S1"


def test_s1_a_wrong_change_that_is_taken():
    asking = Asking()
    asking.near = True
    change = wanted(DISKLESS, "FALSE", must_be_refused=True)
    asking.answer(change, code=ErrorCode.INVALID_CONFIG)
    assert asking.stage.marks["change-refused"] == 1
    assert violated(lambda: asking.answer(change)) == "S1"


@pytest.mark.parametrize(
    ("change", "made", "other"),
    [
        (wanted("retention.ms", "5"), "5", "6"),
        (wanted("retention.ms", None, DELETE), None, "6"),
        (wanted("cleanup.policy", "compact", APPEND), "delete,compact", "delete"),
        (wanted("cleanup.policy", "delete", SUBTRACT), "compact", "compact,delete"),
        (wanted(DISKLESS, " TRUE"), "true", "false"),
    ],
)
def test_s2_an_acknowledged_change_is_in_the_log(change, made, other):
    asking = Asking()
    asking.stage.commit(setting(change.name, other))
    assert violated(lambda: asking.answer(change)) == "S2"
    asking.answer(change, setting(change.name, made))
    asking.answer(change)  # it stands there already
    asking.answer(change, setting(change.name, made), setting(change.name, other))


@pytest.mark.parametrize(
    ("change", "config", "found"),
    [
        (setting("retention.ms", " 5"), LogConfig(retention_ms=5), ""),
        (setting("retention.ms", " 5"), LogConfig(), "S3"),
        (setting("internal.segment.bytes", "40"), LogConfig(segment_bytes=40), ""),
        (setting("internal.segment.bytes", "40"), LogConfig(), "S3"),
        (setting("message.max.bytes", "7", BROKERS), LogConfig(max_message_bytes=7), ""),
        (setting("message.max.bytes", "7", BROKERS), LogConfig(), "S3"),
        (setting("cleanup.policy", ""), LogConfig(cleanup_policy=()), ""),
        (
            setting("cleanup.policy", " delete , compact"),
            LogConfig(cleanup_policy=("delete", "compact")),
            "",
        ),
        (setting("cleanup.policy", "compact"), LogConfig(), "S3"),
    ],
)
def test_s3_a_log_works_by_what_the_metadata_say(change, config, found):
    asking = Asking()
    stage = asking.stage
    asking.checks.look(stage.nodes[1])
    stage.commit(change)
    stage.follow(1)
    stage.log(1).config = config
    if found:
        assert violated(lambda: asking.checks.look(stage.nodes[1])) == found
    else:
        asking.checks.look(stage.nodes[1])


@pytest.mark.parametrize("left_out", [False, True])
def test_s3_a_node_that_follows_has_all_settings(left_out):
    asking = Asking()
    stage = asking.stage
    stage.commit(setting("retention.ms", "5"), setting("segment.ms", "7"))
    before = stage.image
    stage.commit(setting("segment.ms", None))
    stage.log(1).config = LogConfig(retention_ms=5, segment_ms=7 if left_out else 604_800_000)
    node = stage.nodes[1]
    if left_out:
        node.broker.image = msgspec.structs.replace(stage.image, configs=before.configs)
        assert violated(lambda: asking.checks.look(node)) == "S3"
    else:
        stage.follow(1)
        asking.checks.look(node)


def test_s3_asks_nothing_of_a_log_whose_topic_was_deleted():
    asking = Asking()
    stage = asking.stage
    another = SimpleNamespace(topic_id=bytes(16))
    stage.nodes[1].broker.image = SimpleNamespace(topic=lambda _name: another, next_offset=0)
    asking.checks.look(stage.nodes[1])


def test_alterations_are_counted_near_a_crash():
    change = wanted("internal.segment.bytes", "40")
    asking = Asking(change)
    made = setting("internal.segment.bytes", "40")
    asking.checks.committed([made])
    assert not asking.stage.marks["segment-bytes-altered"]
    asking.near = True
    asking.checks.committed([
        TopicRecord(name="other", topic_id=TOPIC_ID), made, setting("segment.ms", None),
        setting("log.roll.ms", "5", BROKERS), setting("retention.ms", "5", "other"),
    ])  # fmt: skip
    marks = asking.stage.marks
    assert marks["segment-bytes-altered"] == marks["brokers-default-altered"] == 1
    assert marks["setting-taken-back"] == 1 and not marks["retention-altered"]


def test_texts_are_read_by_rules_of_the_checkers_own():
    assert [each for each in ("true", " TRUE", "tRue\n", "truex", "", "1") if means_true(each)] == [
        "true", " TRUE", "tRue\n",
    ]  # fmt: skip
    assert entries(" delete ,, compact") == ["delete", "compact"]
    assert deletes(None, "0", None) and not deletes("", "0", None) and not deletes(None, "-1", "-1")
