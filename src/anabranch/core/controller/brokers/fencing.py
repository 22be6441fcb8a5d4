"""Fencing without a word from the broker: by silence, by a hint, and what silence confirms later.

What: the plans that take a broker out of service when its session ends, when a hint says that its
process is gone, and that allow unclean elections for a broker fenced by a hint once its silence has
lasted a whole session. Rule kept: each touches the partitions of that broker alone, and a hint ends
no more than what can be taken back: the broker may lead again with all it has.
"""

from __future__ import annotations

from anabranch.core.controller.brokers.hints import Answer, Probe
from anabranch.core.controller.brokers.lifecycle import BrokerState, state_of, transition
from anabranch.core.controller.brokers.membership import Consequences
from anabranch.core.controller.brokers.sessions import Sessions
from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.reasons import Cause, Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.metadata.image import BrokerImage
from anabranch.core.settings.broker import BrokerConfig


def fence_expired(
    state: ClusterState, sessions: Sessions, config: BrokerConfig, now_ms: int
) -> Result[None] | None:
    """Fence the one broker that has been silent longest, if its session is over."""
    expired = sessions.expired(now_ms)
    if expired is None:
        return None
    broker_id, epoch = expired
    sessions.forget(broker_id, epoch)
    broker = state.image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch or broker.fenced:
        return Result((), None)
    reason = Reason(
        Code.BROKER_SESSION_EXPIRED,
        f"broker {broker_id} sent no heartbeat for {sessions.timeout_ms} ms and is fenced",
        {"broker_id": broker_id, "broker_epoch": epoch, "timeout_ms": sessions.timeout_ms},
    )
    return _fence(state, sessions, config, broker, Cause.SESSION_EXPIRED, reason)


def fence_by_hint(
    state: ClusterState,
    sessions: Sessions,
    config: BrokerConfig,
    broker: BrokerImage,
    probe: Probe,
    answer: Answer,
) -> Result[None]:
    """Fence a broker that a hint speaks against, and suspect it until silence agrees."""
    sessions.suspect(broker.broker_id, broker.epoch)
    reason = Reason(
        Code.BROKER_PROCESS_GONE,
        f"broker {broker.broker_id} closed its connection and {answer.value}: it is fenced",
        {
            "broker_id": broker.broker_id,
            "broker_epoch": broker.epoch,
            "answer": answer.name,
            "asked_ms": probe.asked_ms,
        },
    )
    return _fence(state, sessions, config, broker, Cause.PROCESS_GONE, reason)


def _fence(
    state: ClusterState,
    sessions: Sessions,
    config: BrokerConfig,
    broker: BrokerImage,
    cause: Cause,
    reason: Reason,
) -> Result[None]:
    consequences = Consequences(state, config, sessions.suspects)
    records = transition(consequences, broker, state_of(broker), BrokerState.FENCED, cause)
    return Result(tuple(records), None, (reason, *consequences.reasons))


def give_up_confirmed(
    state: ClusterState, sessions: Sessions, config: BrokerConfig, now_ms: int
) -> Result[None] | None:
    """Take one suspected broker for silent, if it was for a whole session, and elect without it."""
    confirmed = sessions.confirmed(now_ms)
    if confirmed is None:
        return None
    broker_id, epoch = confirmed
    del sessions.suspected_ms[confirmed]
    broker = state.image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch or not broker.fenced:
        return Result((), None)
    consequences = Consequences(state, config, sessions.suspects)
    records = tuple(consequences.given_up(broker_id))
    if not records:
        return Result((), None)
    reason = Reason(
        Code.BROKER_SILENCE_CONFIRMED,
        f"broker {broker_id}, fenced before, was silent for {sessions.timeout_ms} ms",
        {"broker_id": broker_id, "broker_epoch": epoch, "timeout_ms": sessions.timeout_ms},
    )
    return Result(records, None, (reason, *consequences.reasons))
