"""What every simulated client has: a name, a view of the cluster, and patience.

A client asks any broker for metadata, sends to the leaders that it was told, and asks again after a
pause when it gets no answer or one that says so. All its choices come from a random stream of its
own, so that a client more changes nothing for the others.

Not here: what is sent (producer.py, fetcher.py, member.py, admin.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.errors import ErrorCode
from anabranch.core.types import ZERO_TOPIC_ID, TopicId, TopicPartition
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.core.wire.messages.metadata import MetadataResponse
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History

Then = Callable[[], None]
OnAnswer = Callable[[Any], None]

NOBODY = -1


class Place(NamedTuple):
    """What a client was told of one partition."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]


class Patience(NamedTuple):
    """How a client waits, in milliseconds."""

    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 100
    most_backoff_ms: int = 1_000
    delivery_timeout_ms: int = 20_000


class Client:
    """One client process.

    `topics` are those that it asks about. `versions` caps the version of a request by API key: an
    old client is one whose caps are low.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        history: History,
        topics: tuple[str, ...],
        patience: Patience,
        versions: dict[int, int] | None = None,
    ) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.history = history
        self.topics = topics
        self.patience = patience
        self.versions = versions or {}
        self.random = self.world.random(f"client/{name}")
        self.places: dict[TopicPartition, Place] = {}
        self.topic_ids: dict[str, TopicId] = {}
        self.nodes: tuple[int, ...] = tuple(sorted(cluster.nodes))
        self.controller = NOBODY
        self.process = cluster.client(name)
        self.principal = ANONYMOUS
        """In whose name it asks."""
        self.stopped = False
        self._waiting: list[Then] = []
        self._asking = False
        self._failures = 0

    def stop(self) -> None:
        """The process ends at once: nothing is sent any more and no answer is heard."""
        self.stopped = True
        self.resume()
        self.process.life += 1
        self.process.state = State.CRASHED

    def pause(self) -> None:
        """Stand still: answers and timers wait, while the world goes on."""
        if self.process.state is State.RUNNING:
            self.process.state = State.PAUSED
            self.process.held = []

    def resume(self) -> None:
        """Go on with everything that has waited."""
        if self.process.state is State.PAUSED:
            self.process.state = State.RUNNING
            self.world.release(self.process)

    def ask(
        self,
        node_id: int,
        message: Any,
        on_answer: OnAnswer,
        *,
        timeout_ms: int = 0,
        to_controller: bool = False,
    ) -> None:
        """Send one request; `on_answer` gets the response, or None when none came in time."""
        if self.stopped:
            return
        self.cluster.call(
            self.process,
            node_id,
            message,
            on_answer,
            version=self.versions.get(message.api_key),
            timeout_us=1_000 * (timeout_ms or self.patience.request_timeout_ms),
            to_controller=to_controller,
            principal=self.principal,
        )

    def anybody(self) -> int:
        """A broker that it knows of."""
        return self.nodes[self.random.randrange(len(self.nodes))]

    def later(self, delay_ms: int, action: Callable[..., None], *args: Any) -> None:
        """Do something after a pause, unless the process has ended by then."""
        if not self.stopped:
            self.world.after_in(self.process, 1_000 * delay_ms, action, *args)

    def backoff_ms(self, attempts: int) -> int:
        """A pause that grows with failures and is never quite the same."""
        longest: int = self.patience.retry_backoff_ms << min(max(0, attempts - 1), 6)
        longest = max(1, min(longest, self.patience.most_backoff_ms))
        return longest // 2 + self.random.randrange(longest // 2 + 1)

    def refresh(self, then: Then) -> None:
        """Ask for metadata, from one broker after another, until one answers; then go on."""
        self._waiting.append(then)
        if not self._asking:
            self._asking = True
            self._ask_metadata()

    def _ask_metadata(self) -> None:
        node_id = self.anybody()
        topics = [MetadataRequestTopic(name=name) for name in self.topics]
        message = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        self.ask(node_id, message, self._told)

    def _told(self, response: MetadataResponse | None) -> None:
        if response is None or not response.brokers:
            self._failures += 1
            if self._failures % 3 == 0:  # the brokers it knows of may all be gone
                self.nodes = tuple(sorted(self.cluster.nodes))
            self.later(self.backoff_ms(self._failures), self._ask_metadata)
            return
        self._failures = 0
        self._asking = False
        self.nodes = tuple(sorted(broker.node_id for broker in response.brokers))
        self.controller = response.controller_id
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE and topic.name:
                self._learn_topic(topic.name, topic.topic_id)
                for part in topic.partitions:
                    self._learn(topic.name, part)
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def _learn_topic(self, name: str, topic_id: TopicId) -> None:
        known = self.topic_ids.get(name, topic_id)
        self.topic_ids[name] = topic_id
        if known != topic_id:
            self.places = {place: at for place, at in self.places.items() if place.topic != name}
            self.topic_changed(name)

    def topic_changed(self, name: str) -> None:
        """A topic was deleted, and another one has its name."""

    def _learn(self, topic: str, part: Any) -> None:
        """An older epoch than the one known already is stale news of a slower broker."""
        place = TopicPartition(topic, part.partition_index)
        known = self.places.get(place)
        if known is None or part.leader_epoch >= known.leader_epoch:
            self.places[place] = Place(part.leader_id, part.leader_epoch, tuple(part.replica_nodes))

    def topic_id(self, topic: str) -> TopicId:
        """The topic's id, all zeros while it is not known."""
        return self.topic_ids.get(topic, ZERO_TOPIC_ID)
