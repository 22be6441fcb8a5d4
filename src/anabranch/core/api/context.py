"""What a broker's handlers may look at and change: one object, built by the shell or the simulator.

The rule it keeps: handlers reach the world only through this object, and everything they want done
outside of it (waking waiters, syncing a log, asking the controller) is left in its `mailbox`, which
is drained after each step (`core.step`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from anabranch.core.api.acks import Acks
from anabranch.core.api.log_levels import LogLevels, NoLogs
from anabranch.core.api.metadata_view import MetadataCache
from anabranch.core.api.suspects import Suspects
from anabranch.core.broker.peers import Peers
from anabranch.core.coordination.groups.coordinator import GroupCoordinator
from anabranch.core.coordination.transactions.coordinator import TransactionCoordinator
from anabranch.core.coordination.transactions.refusals import Refusals
from anabranch.core.coordination.transactions.verification import Verifier
from anabranch.core.diskless.broker import Diskless
from anabranch.core.due import PEERS, REFUSALS
from anabranch.core.log.files import Bringer
from anabranch.core.log.sequence_gaps import SequenceGaps
from anabranch.core.metadata.image import CLUSTER_DEFAULT, RESOURCE_BROKER
from anabranch.core.partition.bringers import Bringers
from anabranch.core.quotas.client_quotas import ClientQuotas
from anabranch.core.quotas.connection_rates import ConnectionRates
from anabranch.core.replication.replication import Replication
from anabranch.core.settings.listener_changes import nothing_to_refuse
from anabranch.core.step import Mailbox, Wish

if TYPE_CHECKING:
    from anabranch.core.access.authorize import Authorizer
    from anabranch.core.api.fetch_sessions import FetchSessions
    from anabranch.core.broker.authentication import Logins
    from anabranch.core.coordination.timers import Action, Timer
    from anabranch.core.errors import StorageFault
    from anabranch.core.metadata.image import MetadataDelta, MetadataImage
    from anabranch.core.replication.partitions import Partitions
    from anabranch.core.replication.replica import Replica
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.types import TopicPartition

    WithDynamic: TypeAlias = Callable[
        [BrokerConfig, Mapping[str, str], Mapping[str, str]], BrokerConfig
    ]


PRODUCER_IDS = "producer-ids"
"""What a Wait for a block of producer ids is parked under."""

NO_TOPIC = ""
"""What refusals are counted under that concern no topic of this cluster."""

METADATA = "metadata"
"""What a Wait for a change of topics or brokers is parked under."""


def unknown_volume(_folder: str) -> tuple[int, int]:
    """Kafka's answer where the size of a volume cannot be told."""
    return -1, -1


@dataclass(slots=True)
class Broker:
    """One broker as its request handlers see it.

    `image` is replaced, never changed, by the shell after each metadata batch. `config` is the
    effective broker configuration (static, then dynamic). `allocate_producer_id` takes the next id
    of this broker's block or returns None when the shell must fetch a block first.
    """

    broker_id: int
    broker_epoch: int
    cluster_id: str
    config: BrokerConfig
    image: MetadataImage
    partitions: Partitions
    fetch_sessions: FetchSessions
    authorizer: Authorizer
    allocate_producer_id: Callable[[], int | None]
    mailbox: Mailbox = field(default_factory=Mailbox)
    """What steps leave. Four parts of it have short names here."""
    changed: dict[Hashable, None] = field(init=False)
    unsynced: set[TopicPartition] = field(init=False)
    faults: list[tuple[Replica, StorageFault]] = field(init=False)
    wishes: list[Wish] = field(init=False)
    failed_produces: Counter[str] = field(default_factory=lambda: Counter({NO_TOPIC: 0}))
    """Topic -> batches of producers that were refused since the start, NO_TOPIC for those of topics
    that are not there. Kafka leaves stale metadata, sizes and corruption out."""
    sequence_gaps: SequenceGaps = field(default_factory=SequenceGaps)
    """Producers of which a batch is missing: what is behind it waits for it."""
    wished: set[str] = field(default_factory=set)
    """Topics whose creation is on its way to the controller."""
    metadata_cache: MetadataCache = field(default_factory=MetadataCache)
    """Topics as clients see them, made once an image."""
    suspects: Suspects = field(default_factory=Suspects)
    """Brokers that do not answer this one, until the controller has said what they are."""
    random: Random = field(default_factory=Random)
    """For ids that clients are given; a simulation passes a seeded one."""
    volume: Callable[[str], tuple[int, int]] = unknown_volume
    """Total and usable bytes of the volume that holds a log folder."""
    loggers: LogLevels = field(default_factory=NoLogs)
    """The process's log levels, which this broker describes and alters."""
    logins: Mapping[str, Logins] = field(default_factory=dict)
    """What its listeners with SASL offer, by their names."""
    refuse_listeners: Callable[[BrokerConfig], None] = nothing_to_refuse
    """Raises ClientFault for settings of listeners that this node cannot go over to."""
    steady_ms: int = 0
    """The clock that never goes back, at the begin of this step: for sessions and their ends."""
    wall_ms: int = 0
    """The time of day at the begin of this step: for what replication writes into logs."""
    groups: GroupCoordinator = field(init=False)
    """The consumer groups that this broker coordinates."""
    transactions: TransactionCoordinator = field(init=False)
    """The transactional ids that this broker coordinates."""
    refusals: Refusals = field(init=False)
    """Of producers and places, that the log is to name."""
    replication: Replication = field(init=False)
    """What this broker copies from leaders, and the in-sync replicas of what it leads."""

    peers: Peers = field(init=False)
    """What this broker's machines ask of other brokers."""
    verifier: Verifier = field(init=False)
    """Transactions that coordinators are asked about before records of theirs are appended."""
    diskless: Diskless = field(init=False)
    """The partitions whose records lie in object storage: every broker serves them."""
    bringers: Bringers = field(default_factory=Bringers)
    """What brings in the reads that no page cache has."""
    client_quotas: ClientQuotas = field(init=False)
    connection_rates: ConnectionRates = field(init=False)
    quotas: ClientQuotas | None = None
    """`client_quotas` while the image has quotas."""
    acks: Acks = field(default_factory=Acks)
    """Batches that wait until they are committed."""

    def __post_init__(self) -> None:
        left = self.mailbox
        self.changed, self.unsynced = left.changed, left.unsynced
        self.faults, self.wishes = left.faults, left.wishes
        left.woken_by = self.woken_by
        self.peers = Peers(left.due.marker(PEERS))
        self.refusals = Refusals(left.due.marker(REFUSALS))
        self.groups = GroupCoordinator(self)
        self.transactions = TransactionCoordinator(self)
        self.replication = Replication(self)
        self.verifier = Verifier(self, self.groups.after)
        self.diskless = self.partitions.unhosted = Diskless(self)
        self.client_quotas = ClientQuotas(self.config)
        self.connection_rates = ConnectionRates(self.client_quotas.window)
        self.bringers.register(Bringer.DISKLESS, self.diskless.bring)

    def registered(self, broker_epoch: int) -> None:
        """The controller gave this process its epoch, the first one or another."""
        self.broker_epoch = broker_epoch
        self.replication.registered()

    def next_producer_id(self) -> int | None:
        """See `allocate_producer_id`."""
        return self.allocate_producer_id()

    def after(self, delay_ms: int, action: Action) -> Timer:
        """Run `action` when that much time has gone by; coordinators share one heap of deadlines,
        so that the shell needs one timer."""
        return self.groups.after(delay_ms, action)

    def take_config(
        self, image: MetadataImage, delta: MetadataDelta, with_dynamic: WithDynamic
    ) -> None:
        """Take this broker's dynamic settings from an image, before its logs follow that.
        `with_dynamic` makes a configuration: see `BrokerConfig.with_dynamic`."""
        mine = (RESOURCE_BROKER, str(self.broker_id))
        everybody = (RESOURCE_BROKER, CLUSTER_DEFAULT)
        if mine in delta.changed_configs or everybody in delta.changed_configs:
            own, default = image.config(*mine), image.config(*everybody)
            self.config = with_dynamic(self.config, own, default)

    def take_image(
        self, delta: MetadataDelta, published: MetadataDelta | None, now_ms: int
    ) -> None:
        """Act on `image`, once its logs follow it. `delta` is what the last batch changed,
        `published` what changed since this broker acted on an image, None for everything."""
        self.quotas = self.client_quotas if self.client_quotas.follow(self.image.quotas) else None
        self.connection_rates.follow(self.image.quotas)
        self.diskless.follow(self.image, published)
        self.changed[METADATA] = None
        self.groups.take_delta(delta, now_ms)
        for topic in delta.deleted_topics:
            if self.image.topic(topic.name) is None:
                self._count_no_more(topic.name)
        self.follow_leadership(now_ms)

    def _count_no_more(self, topic: str) -> None:
        """A topic is gone, and its metrics with it."""
        self.failed_produces.pop(topic, None)
        self.metadata_cache.zones.forget(topic)
        self.metadata_cache.served.forget(topic)

    def follow_leadership(self, now_ms: int) -> None:
        """Replicas came, went or changed hands: coordinators begin and end with theirs."""
        self.groups.follow_leadership(now_ms)
        self.transactions.follow_leadership(now_ms)

    def woken_by(self, keys: Sequence[Hashable]) -> Iterable[Hashable]:
        """Under which keys waits may be over after these changed: they, and what hangs on them.

        Those are produce requests that are committed, and sessions of followers that have news.
        Transactions go on first, since no request need wait for that."""
        if self.transactions.shards:
            self.transactions.moved(keys, self.wall_ms)
        acks, sessions = self.acks, self.fetch_sessions
        if not acks.lines and not sessions.watched:
            return keys
        woken = dict.fromkeys(keys)
        for key in keys:
            if key in acks.lines:
                woken.update(dict.fromkeys(acks.moved(key, self.partitions)))
            if key in sessions.watched:
                woken.update(dict.fromkeys(sessions.moved(key)))
        return woken
