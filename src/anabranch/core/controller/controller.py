"""What handlers on the controller listener may look at: a controller, active or in waiting.

What: the planned state, sessions, committed log, settings, and chance. Why one object:
shell and simulator build it the same way. Rule kept: a handler changes nothing here but soft state
(sessions); everything else changes when the shell hands planned records to `advance`. While it is
not active it answers nothing but NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.access.authorize import AllowAll, Authorizer
from anabranch.core.access.delegation_tokens import DelegationToken
from anabranch.core.controller.brokers import fencing
from anabranch.core.controller.brokers.hints import Answer, Hints, Probe, was_heard
from anabranch.core.controller.brokers.sessions import AFTER_A_HIT_MS, Sessions
from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.duties import Duties
from anabranch.core.controller.history import History
from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure.isolation import NOTHING_GIVEN, Isolation, isolation
from anabranch.core.controller.token_index import TokenIndex
from anabranch.core.controller.topics.topics import Planner
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.image import (
    CLUSTER_DEFAULT,
    RESOURCE_BROKER,
    MetadataDelta,
    MetadataImage,
)
from anabranch.core.outcome import Decided, Outcome, Propose
from anabranch.core.quotas.client_quotas import UNLIMITED, ClientQuotas, MutationQuota
from anabranch.core.request import Request
from anabranch.core.sentences import number_of
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.describe import describe_topic
from anabranch.core.settings.listener_changes import nothing_to_refuse
from anabranch.core.types import NO_LEADER
from anabranch.core.wire.metadata_records import MetadataRecord
from anabranch.core.wire.schema import Message

if TYPE_CHECKING:
    from anabranch.core.broker.authentication import Logins

METADATA_KEY: Hashable = ("metadata",)
"""What a Fetch of the metadata log waits for: more committed batches."""
NOT_THE_CONTROLLER = "This node is not the controller."


UNKNOWN_MS = -1


class FollowerProgress(NamedTuple):
    """Up to where a node has the metadata; when it last asked for more, and last had all of it."""

    end_offset: int
    fetched_ms: int
    caught_up_ms: int


class Controller:
    """One controller; see the module's docstring."""

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        config: BrokerConfig,
        rng: Random,
        *,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.static_config = config
        self.config = config
        self.rng = rng
        self.endpoint = ("", 0)
        """Host and port of its listener."""
        self.inter_broker_listener = ""
        """The listener on which brokers reach each other, "" where its settings do not name it."""
        self.other_active_id = NO_LEADER
        """While it is not active: who is, as far as its shell knows."""
        self.followed = MetadataImage.empty()
        """What its node has read of the metadata: the newest that is known while not active."""
        self.authorizer: Authorizer = authorizer or AllowAll()
        self.logins: Mapping[str, Logins] = {}
        """What its listeners with SASL offer, by their names."""
        self.refuse_listeners: Callable[[BrokerConfig], None] = nothing_to_refuse
        """Raises ClientFault for settings of its node's listeners that it cannot go over to."""
        self.active = False
        self.epoch = 0
        self.state = ClusterState()
        self.client_quotas = ClientQuotas(config)
        self.sessions = Sessions(config.broker_session_timeout_ms)
        self.given_back = NOTHING_GIVEN
        """What the shell has given back last because of `gives_way`."""
        self.wall_ms = UNKNOWN_MS
        """The time of day at the begin of this step, for what people read. Of decisions only those
        about delegation tokens use it, whose times are of that clock."""
        self.read_to: dict[int, FollowerProgress] = {}
        """Node -> what it last fetched of the metadata, in this term."""
        self.hints = Hints(self.inter_broker_listener)
        self.duties = Duties(config, 0)
        self.tokens = TokenIndex("", {})
        self.log = CommittedLog()
        self.is_doubted = False
        """Whether somebody asked, in this term, who has seen more than this log holds: another
        controller took the lease since, or the store went back."""
        self.is_doubt_settled = False
        """Whether the store has confirmed the lease since: then it went back."""
        self.history = History()
        """Why the newest decisions were made: the shell that reads the log fills it."""
        self.changed: dict[Hashable, None] = {}
        self._default_topic: Sequence[Any] | None = None
        self._next_tick_ms = 0

    @property
    def image(self) -> MetadataImage:
        """The newest planned image: what the next plan stands on."""
        return self.state.image

    @property
    def known(self) -> MetadataImage:
        """The newest image that it has, active or not: for answers, never for decisions."""
        return self.image if self.active else self.followed

    @property
    def quotas(self) -> ClientQuotas | None:
        """What clients may use, while there are quotas."""
        return self.client_quotas if self.client_quotas.follow(self.known.quotas) else None

    def mutation(self, request: Request, now_ms: int, *, strict_since: int) -> MutationQuota:
        """What limits the partitions that a request creates or deletes (KIP-599): in versions from
        `strict_since` on, what is over the quota is refused."""
        quotas = self.quotas
        found = quotas and quotas.mutation(request, now_ms, strict_since=strict_since)
        return found or UNLIMITED

    def token_of(self, token_hmac: bytes) -> DelegationToken | None:
        """The planned token that an HMAC belongs to."""
        return self.tokens.find(self.image.tokens, token_hmac)

    @property
    def active_id(self) -> int:
        """The node that is the active controller, -1 when that is not known."""
        return self.node_id if self.active else self.other_active_id

    @property
    def planner(self) -> Planner:
        """What plans about topics need."""
        return Planner(self.state, self.config, self.rng)

    def begin_term(self, epoch: int, image: MetadataImage, log: CommittedLog, now_ms: int) -> None:
        """Become the active controller with everything that is committed."""
        self.epoch = epoch
        self.state = ClusterState.of(image)
        self.log = log
        before, self.sessions = self.sessions, Sessions(self.config.broker_session_timeout_ms)
        self.sessions.begin(image, now_ms)
        if epoch == self.given_back.epoch + 1:  # no other controller came: silence goes on
            self.sessions.go_on(before, self.node_id)
        self._follow_config()
        self.is_doubted = self.is_doubt_settled = False
        self.read_to = {}
        self.hints = Hints(self.inter_broker_listener)
        self.hints.begin(now_ms)
        self.duties = Duties(self.config, now_ms)
        self.tokens = TokenIndex(self.config.delegation_token_secret_key or "", image.tokens)
        self._next_tick_ms = now_ms
        self.active = True

    def resign(self) -> None:
        """Stop deciding. What was planned and not committed is forgotten with the state."""
        self.active = False
        self.changed[METADATA_KEY] = None

    def advance(self, records: Sequence[MetadataRecord], last_offset: int) -> MetadataDelta:
        """Plan on: apply records whose append is under way."""
        delta = self.state.advance(records, last_offset, self.epoch)
        self.tokens.follow(self.image.tokens, delta.changed_tokens)
        own = (RESOURCE_BROKER, str(self.node_id))
        if not delta.changed_configs.isdisjoint({own, (RESOURCE_BROKER, CLUSTER_DEFAULT)}):
            self._follow_config()
        return delta

    def tick(self, now_ms: int) -> Result[None] | None:
        """What is due without a request, one decision a call: a broker whose session is over,
        leaderships that should be elsewhere, partitions without a leader.

        `now_ms` is of the steady clock. Probes that became due are then in `take_probes`.
        """
        if not self.active:
            return None
        state, sessions, config = self.state, self.sessions, self.config
        self.hints.look_first(state.image, sessions, now_ms)
        alone, result = self._isolation(now_ms), None
        if alone is None:  # who hears nobody tells nobody's silence from its own deafness
            result = fencing.fence_expired(state, sessions, config, now_ms)
            if result is None:
                result = fencing.give_up_confirmed(state, sessions, config, now_ms)
        if result is None:
            result = self.duties.due(
                state, sessions, config, now_ms, self.tokens, hears=alone is None,
                wall_ms=self.wall_ms,
            )  # fmt: skip
        self._next_tick_ms = self._next_look_ms(now_ms, alone, again=result is not None)
        return result

    def _isolation(self, now_ms: int) -> Isolation | None:
        return isolation(self.image, self.sessions, self.node_id, now_ms)

    def gives_way(self, now_ms: int) -> str:
        """Why the lease is to be given back, "" while it is not: see `isolation.py`. To be asked
        before each `tick`, after what was forgiven."""
        alone = self._isolation(now_ms) if self.active else None
        if alone is None or now_ms <= alone.until_ms:
            return ""
        return (
            f"no heartbeat from any of {number_of(alone.voices, 'other broker')} for "
            f"{self.sessions.timeout_ms} ms: this node may be isolated, so another controller may "
            "take over"
        )

    def _next_look_ms(self, now_ms: int, alone: Isolation | None, *, again: bool) -> int:
        if again:
            return now_ms + AFTER_A_HIT_MS
        sessions = self.sessions
        end_ms = sessions.next_end_ms(now_ms) if alone is None else alone.until_ms + 1
        due = [end_ms, self.duties.next_ms(self.state, self.config)]
        if self.hints.first_look_ms is not None:
            due.append(self.hints.first_look_ms)
        return max(now_ms + 1, min(due))

    @property
    def next_tick_ms(self) -> int:
        """When `tick` wants to be called next: never later than a check of the sessions after the
        last call, and AFTER_A_HIT_MS after a call that decided something."""
        return self._next_tick_ms

    def has_read(self, node_id: int, end_offset: int) -> None:
        """A node fetches the metadata from there on: it has what is before."""
        if node_id in self.image.controllers or node_id in self.image.brokers:
            before = self.read_to.get(node_id)
            caught_up_ms = before.caught_up_ms if before is not None else UNKNOWN_MS
            if end_offset >= self.log.end_offset:
                caught_up_ms = self.wall_ms
            self.read_to[node_id] = FollowerProgress(end_offset, self.wall_ms, caught_up_ms)
            self.sessions.has_read(node_id, end_offset - 1)

    def connection_closed(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A connection on which that incarnation registered or sent heartbeats has closed."""
        if self.active:
            self.sessions.hung_up(broker_id, broker_epoch)
            closed = self.hints.connection_closed
            closed(self.image, self.sessions, broker_id, broker_epoch, now_ms)

    def take_probes(self) -> tuple[Probe, ...]:
        """Who is to be dialled now; each probe is given once."""
        return self.hints.take() if self.active else ()

    def probed(self, probe: Probe, answer: Answer, now_ms: int) -> Result[None] | None:
        """What a probe found. The decision, if it fences the broker."""
        if not self.active:
            return None
        broker = self.hints.believed(self.image, self.sessions, probe, answer, now_ms)
        if broker is None:
            return None
        return fencing.fence_by_hint(self.state, self.sessions, self.config, broker, probe, answer)

    def ask_again(self, probe: Probe, now_ms: int) -> None:
        """The time has come to dial a broker again, unless it sent a heartbeat meanwhile."""
        if not was_heard(self.sessions, probe):
            self.connection_closed(probe.broker_id, probe.broker_epoch, now_ms)

    def topic_configs(self, overrides: dict[str, str]) -> Sequence[Any]:
        """A topic's effective settings, described for the CreateTopics response."""
        if overrides:
            return describe_topic(overrides, self.config, None)
        if self._default_topic is None:
            self._default_topic = describe_topic({}, self.config, None)
        return self._default_topic

    def _follow_config(self) -> None:
        image = self.image
        self.config = self.static_config.with_dynamic(
            image.config(RESOURCE_BROKER, str(self.node_id)),
            image.config(RESOURCE_BROKER, CLUSTER_DEFAULT),
        )
        self._default_topic = None

    def statistics(self) -> dict[str, int]:
        """Numbers for the metrics page."""
        return {
            "active": int(self.active),
            "epoch": self.epoch,
            "topics": len(self.image.topics_by_id),
            "brokers": len(self.image.brokers),
            "leaderless_partitions": len(self.state.leaderless),
            "not_led_by_preferred": sum(map(len, self.state.away.values())),
            "missing_replicas": self.state.missing_count,
            "rack_violations": self.state.racks.violations(
                ignored_by_default=self.config.ignore_rack_assignment
            ),
            "committed_offset": self.log.end_offset,
        }


def decides(
    decide: Callable[[Controller, Request, int], Decided],
    refuse: Callable[[Request, ErrorCode, str], Message],
) -> Callable[[Controller, Request, int], Outcome]:
    """A handler that answers NOT_CONTROLLER while inactive and turns ApiErrors into answers."""

    def handler(controller: Controller, request: Request, now_ms: int) -> Outcome:
        if not controller.active:
            return refuse(request, ErrorCode.NOT_CONTROLLER, NOT_THE_CONTROLLER)
        try:
            outcome = decide(controller, request, now_ms)
        except ApiError as fault:
            return refuse(request, fault.code, fault.message)
        if isinstance(outcome, Result):
            return Propose(outcome)
        return outcome

    return handler
