"""`anabranch transactions` against a real cluster: what hangs is found, and aborted."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from anabranch.core.wire.transaction_records import encode_key
from anabranch.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(config={"transaction.state.log.num.partitions": 1}) as running:
        running.create_topic("transfers", partitions=2)
        yield running


@pytest.fixture
def transactions(cluster, against):
    run = against(cluster.bootstrap_servers)
    return lambda *words: run("transactions", *words)


def read(cluster, upto):
    """Values of partition 0 as a read_committed reader sees them before an offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("transfers", 0, 0)])
    values = []
    while True:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            end = consumer.position([TopicPartition("transfers", 0)])[0].offset
            if end in (upto, -1001) or not values:
                break
            continue
        values.append(message.value())
    consumer.close()
    return values


def find(transactions, *words):
    found = transactions("find-hanging", "--max-transaction-timeout", "0", "--json", *words)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_a_transaction_that_hangs_is_found_and_aborted(cluster, transactions):
    hung = cluster.hang_transaction("transfers")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("transfers", b"behind", partition=0)
    producer.flush()
    assert read(cluster, hung.start_offset) == []
    [found] = find(transactions, "--topic", "transfers", "--partition", "0")
    assert (found["producer_id"], found["start_offset"]) == (hung.producer_id, hung.start_offset)
    assert find(transactions) == [found], "in all topics"
    assert find(transactions, "--topic", "transfers", "--partition", "1") == []
    place = ("--topic", "transfers", "--partition", "0")
    wrong = transactions("abort", *place, "--start-offset", "77", "--json")
    assert wrong.exit_code == 1
    assert "begins at offset 77" in json.loads(wrong.stdout)["error"]["message"]
    said = transactions("abort", *place, "--start-offset", str(hung.start_offset))
    assert said.exit_code == 0, said.output
    assert find(transactions) == []
    assert read(cluster, 3) == [b"behind"]


def test_one_that_hangs_is_aborted_by_its_producer_or_at_the_end_of_a_block(cluster, transactions):
    place = ("--topic", "transfers", "--partition", "1")
    with cluster.hang_transaction("transfers", 1) as hung:
        who = ("--producer-id", str(hung.producer_id), "--producer-epoch", "0")
        fenced = transactions("abort", *place, *who, "--coordinator-epoch", "5")
        assert fenced.exit_code == 0, fenced.output
    with cluster.hang_transaction("transfers", 1):
        assert len(find(transactions)) == 1
    assert find(transactions) == []
    told = json.loads(transactions("producers", *place, "--json").stdout)
    assert {each["start_offset"] for each in told} == {-1}
    assert transactions("producers", *place).stdout.startswith("topic")


def test_what_cannot_be_meant_is_refused(transactions):
    place = ("--topic", "transfers", "--partition", "0")
    assert transactions("abort", *place).exit_code == 2
    assert transactions("abort", *place, "--producer-id", "4").exit_code == 2
    assert transactions("find-hanging", "--partition", "0").exit_code == 2
    assert transactions("list", "--state", "No").exit_code == 2
    assert transactions("producers", "--topic", "no", "--partition", "0").exit_code == 1
    who = ("--producer-id", "77", "--producer-epoch", "0", "--coordinator-epoch", "0")
    unknown = transactions("abort", *place, *who)
    assert unknown.exit_code == 1
    assert "No open transaction of transfers-0 is of producer 77" in unknown.stderr


@pytest.mark.parametrize(
    "words", [("producers",), ("abort", "--start-offset", "0"), ("find-hanging",)]
)
def test_a_partition_that_is_not_there_is_refused_at_once(transactions, words):
    begin = time.monotonic()
    said = transactions(*words, "--topic", "transfers", "--partition", "2")
    assert said.exit_code == 1
    assert "Topic transfers has no partition 2: it has 2, counted from 0." in said.stderr
    assert time.monotonic() - begin < 5, "nothing is waited for"


def test_ids_are_listed_by_a_pattern_of_whole_ids(cluster, transactions):
    for name in ("orders-1", "orders-22"):
        made = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name}
        Producer(made).init_transactions(10)
    told = transactions("list", "--transactional-id-pattern", "orders-.", "--json")
    assert [each["transactional_id"] for each in json.loads(told.stdout)] == ["orders-1"]
    refused = transactions("list", "--transactional-id-pattern", "(")
    assert refused.exit_code == 1
    assert "Pattern '('" in refused.stderr


def test_longer_than_lists_open_transactions_only(cluster, transactions):
    """An id without a transaction has no time at which one began."""
    made = {"bootstrap.servers": cluster.bootstrap_servers}
    Producer({**made, "transactional.id": "idle-1"}).init_transactions(10)
    begun = Producer({**made, "transactional.id": "begun-1"})
    begun.init_transactions(10)
    begun.begin_transaction()
    begun.produce("transfers", b"open", partition=0)
    assert begun.flush(10) == 0

    def listed(*words):
        told = transactions("list", "--longer-than", "0", "--json", *words)
        return {each["transactional_id"] for each in json.loads(told.stdout)}

    assert listed() == {"begun-1"}
    assert "idle-1" in listed("--state", "Empty")
    begun.abort_transaction(10)


def test_a_broker_is_asked_for_its_own_replicas(against):
    with LocalCluster(brokers=2) as cluster:
        cluster.create_topic("transfers", replication_factor=2)
        cluster.create_topic("kept", replication_factor=1)
        hung = cluster.hang_transaction("transfers")
        cluster.wait_in_sync("transfers")
        run = against(cluster.bootstrap_servers)
        words = ("transactions", "find-hanging", "--max-transaction-timeout", "0", "--json")
        for broker in ("1", "2"):
            found = run(*words, "--broker-id", broker)
            assert found.exit_code == 0, found.output
            assert [each["start_offset"] for each in json.loads(found.stdout)] == [
                hung.start_offset
            ]
        place = ("--topic", "transfers", "--partition", "0", "--json")
        follower = str(3 - cluster.leader("transfers"))
        told = run("transactions", "producers", *place, "--broker-id", follower)
        assert [each["producer_id"] for each in json.loads(told.stdout)] == [hung.producer_id]
        other = str(3 - cluster.leader("kept"))
        place = ("--topic", "kept", "--partition", "0", "--timeout", "1")
        assert run("transactions", "producers", *place, "--broker-id", other).exit_code == 1
        none = run(*words, "--broker-id", "9")
        assert none.exit_code == 1
        assert (
            "Broker 9 does not exist; known: 1, 2." in json.loads(none.stdout)["error"]["message"]
        )


@pytest.mark.slow
def test_what_a_coordinator_cannot_answer_for_is_named(against):
    """A value of a newer version takes a partition of ids offline: its ids are not "none"."""
    with LocalCluster(config={"transaction.state.log.num.partitions": 1}) as cluster:
        cluster.create_topic("transfers")
        at = {"bootstrap.servers": cluster.bootstrap_servers}
        Producer({**at, "transactional.id": "orders"}).init_transactions(10)
        admin = Producer({**at, "client.id": "__admin_client"})
        admin.produce("__transaction_state", b"\0\7" + bytes(30), encode_key("newer"), partition=0)
        assert admin.flush(10) == 0
        hung = cluster.hang_transaction("transfers")
        cluster.crash()
        cluster.start_broker(1)
        run = against(cluster.bootstrap_servers)
        listed = run("transactions", "list", "--json")
        assert (listed.exit_code, json.loads(listed.stdout)) == (1, [])
        assert "__transaction_state-0: A disk failed" in listed.stderr
        words = ("transactions", "find-hanging", "--max-transaction-timeout", "0", "--json")
        found = run(*words)
        assert (found.exit_code, json.loads(found.stdout)) == (1, [])
        assert "Passed over: __transaction_state-0: A disk failed" in found.stderr
        assert f"transfers-0, producer {hung.producer_id}: its coordinator may be" in found.stderr
        of_one = run(*words, "--topic", "transfers")
        assert (of_one.exit_code, json.loads(of_one.stdout)) == (1, [])


def test_diskless_topics_are_passed_over(cluster, transactions):
    cluster.create_topic("objects", config={"diskless.enable": True})
    try:
        with cluster.hang_transaction("transfers", 1) as hung:
            assert [each["producer_id"] for each in find(transactions)] == [hung.producer_id]
            assert find(transactions, "--topic", "objects") == []
            broker = ("--broker-id", "1")
            assert [each["producer_id"] for each in find(transactions, *broker)] == [
                hung.producer_id
            ]
        told = transactions("producers", "--topic", "objects", "--partition", "0")
        assert told.exit_code == 1
        assert "diskless" in told.stderr
    finally:
        cluster.delete_topic("objects")


def test_a_partition_without_a_leader_stands_in_no_other_ones_way(against):
    with LocalCluster(brokers=2) as cluster:
        cluster.create_topic("transfers", partitions=2, replication_factor=1)
        gone = cluster.leader("transfers", 0)
        assert gone != cluster.leader("transfers", 1)
        hung = cluster.hang_transaction("transfers", 1)
        cluster.stop_broker(gone)
        run = against(cluster.bootstrap_servers)
        place = ("--topic", "transfers", "--partition", "1", "--timeout", "5")
        told = run("transactions", "producers", *place, "--json")
        assert [each["start_offset"] for each in json.loads(told.stdout)] == [hung.start_offset]
        offset = str(hung.start_offset)
        said = run("transactions", "abort", *place, "--start-offset", offset)
        assert said.exit_code == 0, said.output
        place = ("--topic", "transfers", "--partition", "0", "--timeout", "1")
        told = run("transactions", "producers", *place)
        assert "Partition transfers-0 has no leader." in told.stderr
