"""Which topics may be diskless: decided when they are created.

What: the settings of a new topic with `diskless.enable` written out, and the refusal of a change
that would make a topic diskless at once, or no longer so. Why written out: a topic stays what it
was created as, whatever `log.diskless.enable` becomes. Source: `docs/concepts/diskless.md`. Not
here: replication factor and placement of such topics, how a classic topic becomes diskless
(`migration.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.core.diskless.migration import PHASE
from anabranch.core.diskless.topics import BEGINS, DISKLESS, makes_diskless
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.topic_names import is_internal
from anabranch.core.placement.constraints import SETTING as CONSTRAINTS
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.setting import is_true
from anabranch.core.settings.topic import TopicConfig

DEFAULT = "log.diskless.enable"
SYSTEM = "diskless.storage.system.enable"


def new_topic_configs(
    name: str, configs: Mapping[str, str], broker: BrokerConfig
) -> dict[str, str]:
    """The settings that a new topic gets; `configs` are those wanted, and valid. Raises ClientFault
    where the topic would be diskless and may not."""
    made = dict(configs)
    topic = TopicConfig.of(made, broker)
    if topic.diskless_migration_phase or topic.diskless_start_offsets:
        raise _refusal(f"{PHASE} and {BEGINS} are written by the controller. Omit them.")
    if DISKLESS not in made:
        if not broker.log_diskless_enable or is_internal(name):
            return made
        if "compact" in topic.cleanup_policy:
            return made
    elif not topic.diskless_enable:
        return made
    made[DISKLESS] = "true"
    if not broker.diskless_storage_system_enable:
        raise _refusal(
            f"Topic {name} cannot be diskless: {SYSTEM} is false. Set it to true on every node, "
            f"with diskless.storage.url and diskless.coordinator.url, or create the topic with "
            f"{DISKLESS}=false."
        )
    if is_internal(name):
        raise _refusal(f"Topic {name} is internal: it cannot be diskless. Omit {DISKLESS}.")
    refuse_forbidden(name, made, topic)
    return made


def unchanged(name: str, before: Mapping[str, str], values: Mapping[str, str]) -> Mapping[str, str]:
    """The settings after a change, `diskless.enable` spelled as at creation; refuses one after
    which a topic would be another kind, or could not be diskless."""
    was_diskless, is_diskless = makes_diskless(before), makes_diskless(values)
    if is_diskless and not was_diskless:
        raise _refusal(f"Topic {name} is not diskless, and cannot become so at once.")
    if was_diskless and not is_diskless:
        raise _refusal(f"Topic {name} is diskless: {DISKLESS} cannot be changed or removed.")
    if not was_diskless:
        return values
    if is_true(before.get("remote.storage.enable")) and not is_true(
        values.get("remote.storage.enable")
    ):
        raise _refusal(
            f"Topic {name} was classic, and its older records are in remote segments: "
            "remote.storage.enable stays true."
        )
    refuse_forbidden(
        name,
        values,
        TopicConfig.of(values, BrokerConfig.of()),
        was_classic=is_true(before.get("remote.storage.enable")),
    )
    return {**values, DISKLESS: "true"}


def refuse_forbidden(
    name: str, own: Mapping[str, str], topic: TopicConfig, *, was_classic: bool = False
) -> None:
    """Raises ClientFault for a setting that a diskless topic cannot have; `own` are those that it
    has itself, `topic` those that hold. One that `was_classic` has remote segments."""
    if is_true(own.get("remote.storage.enable")) and not was_classic:
        raise _refusal(
            f"Topic {name} cannot be diskless with remote.storage.enable=true: its records are in "
            "object storage already. Omit one of the two."
        )
    if own.get(CONSTRAINTS, "").strip():
        raise _refusal(
            f"Topic {name} cannot be diskless with {CONSTRAINTS}: the placement of diskless topics "
            "is system-managed. Omit one of the two."
        )


def _refusal(sentence: str) -> ClientFault:
    return ClientFault(ErrorCode.INVALID_CONFIG, sentence)
