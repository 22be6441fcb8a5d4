"""S1 to S3: what must hold of settings that are altered while the cluster works.

    S1  a change that is right is taken, and one that a diskless topic cannot have is refused
    S2  a change that was acknowledged stands in the metadata log
    S3  each node that has followed the metadata log has its settings, and each log works by those
        of its node's image, however they are spelled

What: an operator tells each change before it is asked for; `look` compares a node's logs with its
image when that has moved. Texts are read here by rules of the checker's own. Rule kept: what the
changes allow is asked elsewhere, of what each node knew at the time: who may lead (`metadata.py`),
how many must have a record (`committed.py`), what may be deleted and compacted (`replicas.py`,
`logs.py`). Not here: topics' other settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.metadata_records import ConfigRecord
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.model import BROKER, BY_BROKERS, TOPIC, entries, means_true
from anabranch.sim.checks.violation import Violation
from anabranch.sim.settings_plan import APPEND, BY_DEFAULT, DELETE, DISKLESS, SET

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.replication.replica import Replica
    from anabranch.sim.checks.metadata import MetadataChecks
    from anabranch.sim.node import SimNode
    from anabranch.sim.plan import Plan
    from anabranch.sim.plan_parts import Alteration

REFUSALS = frozenset({
    ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR,
})  # fmt: skip
"""What says that a change is wrong, not that it came at a wrong moment."""
BROKER_NAMES = {
    **BY_BROKERS,
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "max.message.bytes": "message.max.bytes",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
}
NUMBERS = {
    "segment.bytes": ("segment_bytes", 1_073_741_824),
    "segment.ms": ("segment_ms", 604_800_000),
    "max.message.bytes": ("max_message_bytes", 1_048_588),
    "retention.ms": ("retention_ms", 604_800_000),
    "retention.bytes": ("retention_bytes", -1),
    "delete.retention.ms": ("delete_retention_ms", 86_400_000),
    "min.compaction.lag.ms": ("min_compaction_lag_ms", 0),
}
"""A topic's setting -> what a log calls it, and Kafka's default."""
IN_TESTS = "internal.segment.bytes"
"""Overrides segment.bytes, without a lower bound."""
_MARKS = {
    IN_TESTS: "segment-bytes-altered",
    "segment.bytes": "segment-bytes-altered",
    "segment.ms": "segment-age-altered",
    "max.message.bytes": "message-bytes-altered",
    "retention.ms": "retention-altered",
    "retention.bytes": "retention-altered",
    "cleanup.policy": "cleanup-policy-altered",
    "unclean.leader.election.enable": "unclean-altered",
    "delete.retention.ms": "tombstone-time-altered",
    "min.compaction.lag.ms": "compaction-lag-altered",
}
"""What is counted when a topic's setting was altered near a crash."""


class SettingsChecks:
    """See the module. `near_a_crash` says whether a process crashed a moment ago."""

    def __init__(
        self, metadata: MetadataChecks, marks: Marks, plan: Plan, near_a_crash: Callable[[], bool]
    ) -> None:
        self._metadata = metadata
        self._model = metadata.model
        self._marks = marks
        self._near_a_crash = near_a_crash
        self._topics = {each.topic for each in plan.alterations} - {BY_DEFAULT}
        planned = (*plan.topics, *(plan.diskless.topics if plan.diskless is not None else ()))
        self._made_again = {each.name for each in planned if each.is_made_again}
        self._seen: dict[int, tuple[object, MetadataImage]] = {}
        """Node -> its life and the image that its logs were compared with."""

    # What the operator asks for.

    def asked(self, wanted: Alteration) -> Callable[[Any], None]:
        """A change is about to be asked for; who judges its answer."""
        since, before = len(self._model.changed), self._value(wanted)

        def answered(response: Any) -> None:
            if response is None or self._metadata.rewound:
                return
            answer = response.responses[0]
            code = answer.error_code
            told = {
                "topic": wanted.topic, "setting": wanted.name, "how": wanted.operation,
                "value": wanted.value, "answer": answer.error_message,
            }  # fmt: skip
            if wanted.must_be_refused:
                self._check_refused(code, told)
            elif code in REFUSALS:
                raise Violation("S1", "A change of a setting is refused that is right.", told)
            elif code == ErrorCode.NONE and wanted.topic not in self._made_again:
                held = [before, *(each.value for each in self._model.changed[since:]
                                  if (each.resource, each.name) == _key(wanted))]  # fmt: skip
                if not any(_fits(wanted, each) for each in held):
                    sentence = "A change was acknowledged, and is not in the metadata log."
                    raise Violation("S2", sentence, {**told, "held": held})

        return answered

    def _check_refused(self, code: int, told: dict[str, Any]) -> None:
        if code == ErrorCode.NONE:
            raise Violation("S1", "A change is taken that a diskless topic cannot have.", told)
        if code in REFUSALS and self._near_a_crash():
            self._marks.hit("change-refused")

    def _value(self, wanted: Alteration) -> str | None:
        resource, name = _key(wanted)
        return self._model.configs.get(resource, {}).get(name)

    def committed(self, records: Iterable[Any]) -> None:
        """The metadata log has a batch more."""
        if not self._near_a_crash():
            return
        existing = set(self._model.topics.values())
        for each in records:
            if type(each) is not ConfigRecord:
                continue
            if (each.resource_type, each.resource_name) == (BROKER, ""):
                self._marks.hit("brokers-default-altered")
            elif each.resource_name in self._topics & existing:
                self._mark(each)

    def _mark(self, record: ConfigRecord) -> None:
        if record.name in _MARKS:
            self._marks.hit(_MARKS[record.name])
        if record.value is None:
            self._marks.hit("setting-taken-back")

    # What logs work by.

    def look(self, node: SimNode) -> None:
        """After an event of a node: compare its logs with its image, where that has moved."""
        broker = node.broker
        seen = self._seen.get(node.node_id)
        if seen is not None and seen == (id(broker), broker.image):
            return
        self._seen[node.node_id] = (id(broker), broker.image)
        if broker.image.next_offset == self._model.end_offset and not self._metadata.rewound:
            self._check_image(node, broker.image)
        for replica in broker.partitions:
            if replica.log.fault is None:
                self._compare(node, replica, broker.image)

    def _check_image(self, node: SimNode, image: MetadataImage) -> None:
        """Of a node that has followed everything: what it takes for the settings."""
        for resource, values in self._model.configs.items():
            if dict(image.config(*resource)) != values:
                raise Violation(
                    "S3", "A node's image has other settings than the metadata log.",
                    {"node": node.name, "resource": resource, "log": values,
                     "node_has": dict(image.config(*resource))},
                )  # fmt: skip

    def _compare(self, node: SimNode, replica: Replica, image: MetadataImage) -> None:
        topic, config = replica.topic_partition.topic, replica.log.config
        known = image.topic(topic)
        if known is None or known.topic_id != replica.topic_id:
            return
        for name, (attribute, default) in NUMBERS.items():
            text = self._text(image, topic, name)
            if name == "segment.bytes":
                text = image.config(TOPIC, topic).get(IN_TESTS) or text
            wanted = default if text is None else int(text)
            if getattr(config, attribute) != wanted:
                self._differs(node, replica, name, getattr(config, attribute), wanted)
        text = self._text(image, topic, "cleanup.policy")
        policy = entries("delete" if text is None else text)  # of "" nothing is left: neither
        if list(config.cleanup_policy) != policy:
            self._differs(node, replica, "cleanup.policy", config.cleanup_policy, policy)

    def _text(self, image: MetadataImage, topic: str, name: str) -> str | None:
        own = image.config(TOPIC, topic).get(name)
        if own is not None:
            return own
        name = BROKER_NAMES.get(name, name)
        return image.config(BROKER, "").get(name, self._model.static.get(name))

    def _differs(
        self, node: SimNode, replica: Replica, name: str, works_by: object, wanted: object
    ) -> None:
        raise Violation(
            "S3", "A log works by another setting than the metadata say.",
            {"node": node.name, "partition": replica.topic_partition, "setting": name,
             "works_by": works_by, "metadata": wanted},
        )  # fmt: skip


def _key(wanted: Alteration) -> tuple[tuple[int, str], str]:
    kind = BROKER if wanted.topic == BY_DEFAULT else TOPIC
    return (kind, wanted.topic), wanted.name


def _fits(wanted: Alteration, held: str | None) -> bool:
    """Whether what stands in the log is what a change wanted."""
    if wanted.operation == DELETE or held is None:
        return wanted.operation == DELETE and held is None
    if wanted.name == DISKLESS:
        return means_true(held)
    if wanted.operation == SET:
        return held == wanted.value
    return (wanted.value in entries(held)) == (wanted.operation == APPEND)
