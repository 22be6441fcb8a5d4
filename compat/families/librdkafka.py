"""librdkafka through confluent-kafka: transactions, as kcat does not write them."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from compat.families.topics import create
from compat.peer import Peer
from compat.row import Failed, row

SECONDS = 30.0
RECORDS = 20
TOPIC = "rdkafka-transactions"
COPIED = f"{TOPIC}-copied"


@row("librdkafka-transactions")
def transacts(peer: Peer) -> object:
    """Transactions are committed and aborted, a group copies, a second producer fences."""
    create(peer, TOPIC, 2)
    create(peer, COPIED, 2)
    first = producer(peer, TOPIC)
    for name in ("committed", "aborted", "again"):
        transaction(first, name, commits=name != "aborted")
    aborted, committed = (copy(peer, commits=commits) for commits in (False, True))
    first.begin_transaction()
    first.produce(TOPIC, "lost", partition=0)
    first.flush(SECONDS)
    second = producer(peer, TOPIC)
    fenced = refused(first)
    transaction(second, "second", commits=True)
    return {
        "copied": (aborted, committed),
        "fenced": fenced,
        "input": values(peer, TOPIC),
        "output": values(peer, COPIED),
        "stable": stable(peer, TOPIC),
    }


def producer(peer: Peer, name: str) -> Producer:
    """A producer that has this transactional id."""
    made = Producer({"bootstrap.servers": peer.bootstrap, "transactional.id": name, "log_level": 0})
    made.init_transactions(SECONDS)
    return made


def transaction(sender: Producer, name: str, *, commits: bool) -> None:
    """Records in both partitions."""
    sender.begin_transaction()
    for number in range(RECORDS):
        sender.produce(TOPIC, f"{name}-{number}", partition=number % 2)
    sender.flush(SECONDS)
    (sender.commit_transaction if commits else sender.abort_transaction)(SECONDS)


def refused(sender: Producer) -> str:
    """The name of the error that a fenced producer's commit is refused with."""
    try:
        sender.commit_transaction(SECONDS)
    except KafkaException as error:
        return str(error.args[0].name())
    raise Failed("a fenced producer committed")


def consumer(peer: Peer, group: str) -> Consumer:
    """A reader of committed records."""
    return Consumer(
        {
            "bootstrap.servers": peer.bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def read(reader: Consumer) -> dict[tuple[int, int], bytes | None]:
    """Partition and offset of each record up to both ends."""
    found: dict[tuple[int, int], bytes | None] = {}
    ended: set[int] = set()
    while len(ended) < 2:
        message = reader.poll(SECONDS)
        if message is None:
            raise Failed(f"a reader came to the ends of {sorted(ended)} alone")
        place = message.partition() or 0
        if message.error():
            ended.add(place)
        else:
            found[place, message.offset() or 0] = message.value()
    return found


def copy(peer: Peer, *, commits: bool) -> list[int]:
    """Copy what the group has not read, with its offsets, in one transaction; its offsets then."""
    reader, sender = consumer(peer, TOPIC), producer(peer, COPIED)
    reader.subscribe([TOPIC])
    records = read(reader)
    sender.begin_transaction()
    for (partition, _), value in records.items():
        sender.produce(COPIED, value, partition=partition)
    positions = reader.position(reader.assignment())
    sender.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), SECONDS)
    (sender.commit_transaction if commits else sender.abort_transaction)(SECONDS)
    told = reader.committed([TopicPartition(TOPIC, number) for number in range(2)], SECONDS)
    reader.close()
    return [each.offset for each in told]


def values(peer: Peer, topic: str) -> list[str]:
    """All committed values."""
    reader = consumer(peer, "nobody")
    reader.assign([TopicPartition(topic, number, 0) for number in range(2)])
    found = sorted((value or b"").decode() for value in read(reader).values())
    reader.close()
    return found


def stable(peer: Peer, topic: str) -> list[int]:
    """Where committed records end."""
    reader = consumer(peer, "nobody")
    ends = [reader.get_watermark_offsets(TopicPartition(topic, each), SECONDS) for each in range(2)]
    reader.close()
    return [high for _, high in ends]
