"""What the handlers of groups share: authorization, waits for the group's partition, and the
topics of coordinators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import METADATA, Broker
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Cold, Outcome, Told, Wait, then
from anabranch.core.request import Request
from anabranch.core.step import Wish
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from anabranch.core.coordination.answers import Answer
    from anabranch.core.coordination.shard import Shard
    from anabranch.core.types import TopicPartition

CREATE_TIMEOUT_MS = 30_000
CREATION_WAIT_MS = 1_000
"""How long an answer waits for a coordinator's topic before the client is asked to come again."""


def group_allowed(broker: Broker, request: Request, operation: Operation, group_id: str) -> bool:
    """`authorize` for a group."""
    return broker.authorizer.allows_all or broker.authorizer.authorize(
        request, operation, ResourceType.GROUP, group_id
    )


def wait_committed(
    answer: Answer,
    shard: Shard,
    now_ms: int,
    late: Callable[[], Any],
    longest_ms: int,
) -> Any:
    """A Wait for what is answered once records are committed, or the answer if they are.

    `late` makes the answer for when time is over, and for when this broker has ceased to lead the
    group's partition: at once, since nobody here will learn of these records any more.
    """
    return answer.wait(
        now_ms,
        late,
        keys=(shard.place,),
        look=shard.catch_up,
        longest_ms=longest_ms,
    )


def when_committed(
    broker: Broker,
    shard: Shard,
    done: Answer,
    now_ms: int,
    tell: Callable[[ErrorCode], Told],
) -> Told | Wait | Cold:
    """What `tell` makes of the code that `done` is given once its records are committed, or a Wait
    for it: COORDINATOR_NOT_AVAILABLE after `offsets.commit.timeout.ms`, NOT_COORDINATOR as soon as
    the group has moved away."""

    def late() -> ErrorCode:
        if shard.is_current:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NOT_COORDINATOR

    longest_ms = broker.config.offsets_commit_timeout_ms
    return then(wait_committed(done, shard, now_ms, late, longest_ms), tell)


def when_created(
    broker: Broker,
    topic: CreatableTopic,
    now_ms: int,
    poll: Callable[[int, bool], Outcome | None],
    places: Iterable[TopicPartition] = (),
    *,
    holds_up: bool = False,
) -> Wait:
    """A wait for a coordinator's topic, which is asked for unless it is there: `poll` looks with
    each change of the metadata, and when one of these partitions moves; its answer must not be None
    once time is over. `holds_up` has what the client sends next wait as well."""
    if broker.image.topic(topic.name) is None:
        wish_topic(broker, topic)
    return Wait((METADATA, *places), now_ms + CREATION_WAIT_MS, poll, holds_up=holds_up)


def wish_topic(broker: Broker, topic: CreatableTopic) -> None:
    """Ask the controller for a coordinator's topic, once at a time."""
    if topic.name in broker.wished:
        return
    message = CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_TIMEOUT_MS)
    broker.wished.add(topic.name)
    broker.wishes.append(Wish(message, partial(broker.wished.discard, topic.name)))
