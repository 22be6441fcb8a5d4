"""How a classic topic begins to become diskless, and how that is cancelled.

What: `diskless.enable=true` for a classic topic is not written: the phase of a migration is, until
the topic can be diskless (`core/controller/diskless/migrations.py`); `false` takes the phase away.
Rules kept: what a migration needs is checked before it begins and held until it ends; nobody but
the controller writes a phase. Not here: what follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.core.controller.topics.diskless import SYSTEM, refuse_forbidden
from anabranch.core.diskless.migration import PHASE, Phase, Step
from anabranch.core.diskless.topics import BEGINS, DISKLESS, makes_diskless
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.image import MetadataImage, TopicImage
from anabranch.core.metadata.topic_names import is_internal
from anabranch.core.remote.topics import REMOTE
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.topic import TopicConfig

MOST_NAMED = 5
"""Partitions in one refusal."""


def with_migration(
    image: MetadataImage,
    broker: BrokerConfig,
    name: str,
    before: Mapping[str, str],
    values: Mapping[str, str],
) -> Mapping[str, str]:
    """The settings of a topic after a change, with a migration begun, kept or cancelled. Raises
    ClientFault."""
    for each in (PHASE, BEGINS):
        if before.get(each) != values.get(each):
            raise _refusal(f"{each} is written by the controller; set {DISKLESS} instead.")
    if makes_diskless(before):
        return values
    without = {key: value for key, value in values.items() if key != DISKLESS}
    if PHASE not in before:
        if not makes_diskless(values):
            return values
        _check(image, broker, name, without)
        return {**without, PHASE: str(Phase(Step.PREPARING, image.next_offset))}
    if DISKLESS in values and not makes_diskless(values):
        del without[PHASE]
        return without
    _check_settings(broker, name, without)
    return without


def _check(
    image: MetadataImage,
    broker: BrokerConfig,
    name: str,
    values: Mapping[str, str],
) -> None:
    topic = image.topic(name)
    if is_internal(name):
        raise _refusal(f"Topic {name} is internal: it cannot become diskless.")
    _check_settings(broker, name, values)
    unfit = [] if topic is None else list(_unfit(topic))
    if unfit:
        more = f", and {len(unfit) - MOST_NAMED} more" if len(unfit) > MOST_NAMED else ""
        raise _refusal(
            f"Topic {name} cannot become diskless now: {', '.join(unfit[:MOST_NAMED])}{more}. Wait "
            "until all replicas are in sync and no move is under way, then begin again."
        )


def _unfit(topic: TopicImage) -> Iterator[str]:
    """What keeps partitions from being sealed."""
    for index, each in sorted(topic.partitions.items()):
        place = f"{topic.name}-{index}"
        if each.leader < 0:
            yield f"{place} has no leader"
        elif set(each.isr) != set(each.replicas) or each.missing:
            yield f"{place} has replicas that are not in sync"
        elif each.adding or each.removing:
            yield f"{place} is being moved"


def _check_settings(broker: BrokerConfig, name: str, values: Mapping[str, str]) -> None:
    """What a migration needs from its begin to its end."""
    topic = TopicConfig.of(values, broker)
    if not broker.diskless_storage_system_enable:
        raise _refusal(
            f"Topic {name} cannot become diskless: {SYSTEM} is false. Set it to true on every "
            "node, with diskless.storage.url and diskless.coordinator.url."
        )
    refuse_forbidden(name, values, topic, was_classic=True)
    if "compact" in topic.cleanup_policy:
        raise _refusal(
            f"Topic {name} cannot become diskless with cleanup.policy="
            f"{','.join(topic.cleanup_policy)}: compacted topics have no remote log."
        )
    if not topic.remote_storage_enable:
        raise _refusal(
            f"Topic {name} cannot become diskless without {REMOTE}=true: its older records stay "
            "in remote segments. Set it, and begin when its closed segments are copied."
        )
    if topic.remote_log_copy_disable:
        raise _refusal(
            f"Topic {name} cannot become diskless with remote.log.copy.disable=true: what is not "
            "copied would be lost. Set it to false."
        )
    if topic.unclean_leader_election_enable:
        raise _refusal(
            f"Topic {name} cannot become diskless with unclean.leader.election.enable=true: a log "
            "that was sealed could lose records. Set it to false."
        )


def _refusal(sentence: str) -> ClientFault:
    return ClientFault(ErrorCode.INVALID_CONFIG, sentence)
