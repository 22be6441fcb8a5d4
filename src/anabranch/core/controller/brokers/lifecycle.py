"""Brokers come and go: registration, the heartbeat's table of states, unregistering.

What: KIP-631's broker lifecycle. A registration is refused while another incarnation lives, and
what its folders are worth follows from whose they are (`succession.py`). A new one is always fenced
until the broker has read the metadata log up to its own registration. Rule kept: a broker epoch is
an offset of the log, so it is never given twice. Not here: fencing without a heartbeat
(`fencing.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from anabranch.core.controller.brokers.directories import (
    go_offline,
    none_works,
    reported_as_failed,
)
from anabranch.core.controller.brokers.membership import Consequences, check_broker_epoch
from anabranch.core.controller.brokers.room_reports import change_room
from anabranch.core.controller.brokers.sessions import Sessions
from anabranch.core.controller.brokers.succession import (
    Folders,
    check_succession,
    folders_of,
    older_folders,
)
from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.diskless.absence import left_behind
from anabranch.core.controller.reasons import Cause, Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.features import check_broker_features, offered
from anabranch.core.metadata.image import BrokerImage
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import topic_id_text
from anabranch.core.wire.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from anabranch.core.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerResponse
from anabranch.core.wire.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from anabranch.core.wire.own_fields import has_own
from anabranch.core.wire.schema import same_fields

RESERVED_DIRECTORIES = frozenset(number.to_bytes(16) for number in range(100))
"""Directory ids that mean something else (KIP-858): unassigned, lost, migrating, and spare ones."""

FENCE = 1
UNFENCE = -1
ENTER_SHUTDOWN = 1


class BrokerState(Enum):
    """Where a broker is in its life, as its controller sees it."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


def state_of(broker: BrokerImage) -> BrokerState:
    """The state that a registration shows."""
    if broker.fenced:
        return BrokerState.FENCED
    if broker.in_controlled_shutdown:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.UNFENCED


# Registration


def register(
    state: ClusterState,
    sessions: Sessions,
    config: BrokerConfig,
    cluster_id: str,
    request: BrokerRegistrationRequest,
    now_ms: int,
) -> Result[BrokerRegistrationResponse]:
    """Register a broker. Raises ClientFault with Kafka's codes, in Kafka's order of checks."""
    if request.cluster_id != cluster_id:
        raise ClientFault(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = state.image.brokers.get(request.broker_id)
    if existing is not None:
        check_succession(existing, sessions, request, now_ms)
    _check_directories(state, request)
    check_broker_features(state.image, offered(request.features))
    same = existing is not None and existing.incarnation_id == request.incarnation_id
    records: list[MetadataRecord] = []
    consequences = Consequences(state, config, sessions.suspects - {request.broker_id})
    if existing is not None and not same:
        records += _succession(consequences, existing, request)
        sessions.forget(existing.broker_id, existing.epoch)
    epoch = existing.epoch if existing is not None and same else state.image.next_offset
    records.append(_registration_record(request, epoch, existing if same else None))
    sessions.heard(request.broker_id, epoch, now_ms)
    reason = Reason(
        Code.BROKER_REGISTERED,
        f"broker {request.broker_id} registered with epoch {epoch}"
        f"{_reservation(existing, request)}",
        {"broker_id": request.broker_id, "broker_epoch": epoch, "succeeds": existing is not None},
    )
    response = BrokerRegistrationResponse(broker_epoch=epoch)
    return Result(tuple(records), response, (reason, *consequences.reasons))


def _check_directories(state: ClusterState, request: BrokerRegistrationRequest) -> None:
    directories = [bytes(each) for each in request.log_dirs]
    if not directories:
        raise _invalid("No directories specified in request")
    if len(set(directories)) != len(directories):
        raise _invalid("Duplicate directory ID in request")
    if not RESERVED_DIRECTORIES.isdisjoint(directories):
        raise _invalid("Reserved directory ID in request")
    for broker in state.image.brokers.values():
        taken = set(broker.log_dirs).intersection(directories)
        if broker.broker_id != request.broker_id and taken:
            names = ", ".join(sorted(map(topic_id_text, taken)))
            raise _invalid(
                f"Broker {broker.broker_id} is already registered with directory {names}"
            )


def _invalid(sentence: str) -> ClientFault:
    return ClientFault(ErrorCode.INVALID_REGISTRATION, sentence)


def _reservation(existing: BrokerImage | None, request: BrokerRegistrationRequest) -> str:
    if existing is None or existing.incarnation_id == request.incarnation_id:
        return ""
    if folders_of(existing, request) is not Folders.OLDER:
        return ""
    return (
        f" on folders that are older than its epoch {existing.epoch}: their replicas are not "
        "trusted until they have been in sync again"
    )


def _succession(
    consequences: Consequences, existing: BrokerImage, request: BrokerRegistrationRequest
) -> list[MetadataRecord]:
    """What the old incarnation leaves behind: cleanly stopped, it may still have everything."""
    folders, broker_id = folders_of(existing, request), existing.broker_id
    if folders is Folders.CLOSED:
        return list(consequences.leaves(broker_id, Cause.RESTARTED))
    if folders is Folders.OLDER:
        return list(consequences.set_back(broker_id, older_folders(existing, request)))
    return list(consequences.lost(broker_id, Cause.RESTARTED_UNCLEANLY))


def _registration_record(
    request: BrokerRegistrationRequest, epoch: int, amended: BrokerImage | None
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[same_fields(BrokerEndpoint, each) for each in request.listeners],
        features=[same_fields(BrokerFeature, each) for each in request.features],
        rack=request.rack,
        fenced=True if amended is None else amended.fenced,
        in_controlled_shutdown=amended is not None and amended.in_controlled_shutdown,
        log_dirs=list(request.log_dirs),
        is_noted=has_own(request),
    )


# Heartbeats


def next_state(
    current: BrokerState,
    *,
    want_fence: bool,
    want_shut_down: bool,
    caught_up: bool,
    leads: bool,
    shutdown_seen: bool,
) -> BrokerState:
    """Kafka's table (BrokerHeartbeatManager.calculateNextBrokerState).

    `caught_up`: it read its own registration. `shutdown_seen`: every active broker has read the
    record that took its leaderships away.
    """
    if current is BrokerState.FENCED:
        if want_shut_down:
            return BrokerState.SHUTDOWN_NOW
        return BrokerState.UNFENCED if caught_up and not want_fence else BrokerState.FENCED
    if current is BrokerState.UNFENCED:
        if want_fence:
            return BrokerState.SHUTDOWN_NOW if want_shut_down else BrokerState.FENCED
        if want_shut_down:
            return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW
        return BrokerState.UNFENCED
    if current is BrokerState.CONTROLLED_SHUTDOWN:
        if not leads and shutdown_seen:
            return BrokerState.SHUTDOWN_NOW
        return BrokerState.CONTROLLED_SHUTDOWN
    raise ValueError(f"a registration is never in state {current}")


def heartbeat(
    state: ClusterState,
    sessions: Sessions,
    config: BrokerConfig,
    request: BrokerHeartbeatRequest,
    now_ms: int,
) -> Result[BrokerHeartbeatResponse]:
    """One heartbeat. Raises ClientFault STALE_BROKER_EPOCH.

    One that was sent before its broker was permitted to stop may come after that."""
    broker = check_broker_epoch(state.image, request.broker_id, request.broker_epoch)
    sessions.heard(broker.broker_id, broker.epoch, now_ms)
    sessions.metadata_offsets[broker.broker_id] = request.current_metadata_offset
    registered_at = state.registration_offsets.get(broker.broker_id, broker.epoch)
    caught_up = request.current_metadata_offset >= registered_at
    current = state_of(broker)
    failed = frozenset(map(bytes, request.offline_log_dirs))
    has_none = none_works(state.image, broker, failed)
    following = next_state(
        current,
        want_fence=request.want_fence or has_none,
        want_shut_down=request.want_shut_down
        or sessions.is_stopping(broker.broker_id, broker.epoch),
        caught_up=caught_up,
        leads=state.led_count.get(broker.broker_id, 0) > 0,
        shutdown_seen=_shutdown_seen(state, sessions, broker.broker_id),
    )
    if following is BrokerState.SHUTDOWN_NOW:
        sessions.may_stop[broker.broker_id] = broker.epoch
    consequences = Consequences(state, config, sessions.suspects - {broker.broker_id})
    cause = Cause.FOLDER_FAILED if has_none else Cause.ASKED
    records = transition(consequences, broker, current, following, cause)
    if following is BrokerState.CONTROLLED_SHUTDOWN and records:
        last = state.image.offset + len(records)
        sessions.shutdown_offsets.setdefault(broker.broker_id, last)
    if following in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW) and records:
        sessions.forget(broker.broker_id, broker.epoch)
    response = BrokerHeartbeatResponse(
        is_caught_up=caught_up,
        is_fenced=following in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        should_shut_down=following is BrokerState.SHUTDOWN_NOW,
    )
    why = _reasons(broker, current, following)
    if has_none:
        why = (reported_as_failed(broker, broker.log_dirs), *why)
    if failed:
        sessions.offline_folders[broker.broker_id] = (broker.epoch, failed)
    if failed and not records:  # else it is told again by the next heartbeat
        records, why = go_offline(consequences, broker, failed)
    if not records:
        records, why = change_room(consequences, broker, request)
    return Result(tuple(records), response, (*why, *consequences.reasons), is_routine=True)


def _shutdown_seen(state: ClusterState, sessions: Sessions, broker_id: int) -> bool:
    shutdown_offset = sessions.shutdown_offsets.get(broker_id)
    lowest = sessions.lowest_active_offset(state.image)
    return shutdown_offset is None or lowest is None or shutdown_offset <= lowest


def transition(
    consequences: Consequences,
    broker: BrokerImage,
    current: BrokerState,
    following: BrokerState,
    cause: Cause,
) -> list[MetadataRecord]:
    """The records that take a broker to another state. `cause` is why it is fenced, if it is."""
    if following is current or (broker.fenced and following is BrokerState.SHUTDOWN_NOW):
        return []
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch)
    if following is BrokerState.UNFENCED:
        change.fenced = UNFENCE
        return [change, *consequences.returns(broker.broker_id)]
    if following is BrokerState.CONTROLLED_SHUTDOWN:
        change.in_controlled_shutdown = ENTER_SHUTDOWN
        return [change, *consequences.leaves(broker.broker_id, Cause.SHUTS_DOWN)]
    change.fenced = FENCE
    if following is BrokerState.SHUTDOWN_NOW:
        cause = Cause.SHUTS_DOWN
    return [*consequences.leaves(broker.broker_id, cause), change]


def _reasons(
    broker: BrokerImage, current: BrokerState, following: BrokerState
) -> tuple[Reason, ...]:
    if current is following:
        return ()
    sentence = f"broker {broker.broker_id} goes from {current.value} to {following.value}"
    details: Mapping[str, int] = {"broker_id": broker.broker_id, "broker_epoch": broker.epoch}
    return (Reason(Code.BROKER_STATE_CHANGED, sentence, details),)


def unregister(
    state: ClusterState, sessions: Sessions, config: BrokerConfig, broker_id: int
) -> Result[UnregisterBrokerResponse]:
    """Forget a node that will not come back, as broker and as controller; replica lists keep its
    id. Raises ClientFault BROKER_ID_NOT_REGISTERED."""
    broker = state.image.brokers.get(broker_id)
    gone: list[MetadataRecord] = []
    if broker_id in state.image.controllers:
        gone.append(RegisterControllerRecord(controller_id=broker_id))
    if broker is None and gone:
        sentence = f"controller {broker_id} was unregistered"
        said = Reason(Code.BROKER_UNREGISTERED, sentence, {"broker_id": broker_id})
        return Result(tuple(gone), UnregisterBrokerResponse(), (said,))
    if broker is None:
        raise ClientFault(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        )
    consequences = Consequences(state, config, sessions.suspects - {broker_id})
    records = list(consequences.lost(broker_id, Cause.UNREGISTERED))
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    if state.diskless.on.get(broker_id):
        records.append(NoOpRecord(absences=[left_behind(state.image, broker)]))
    reason = Reason(
        Code.BROKER_UNREGISTERED,
        f"broker {broker_id} was unregistered",
        {"broker_id": broker_id, "broker_epoch": broker.epoch},
    )
    sessions.forget(broker_id, broker.epoch)
    reasons = (reason, *consequences.reasons)
    return Result((*records, *gone), UnregisterBrokerResponse(), reasons)
