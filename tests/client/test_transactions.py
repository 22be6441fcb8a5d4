"""Coordinators that cannot answer are named; what the others know is told."""

from __future__ import annotations

import pytest

from anabranch.client import every_broker, transactions
from anabranch.client.cluster import BrokerAddress, Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.transactions import Listed, find_hanging, list_transactions
from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from anabranch.core.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from anabranch.core.wire.messages.metadata import (
    MetadataResponsePartition,
    MetadataResponseTopic,
)

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
ORDERS, PAYMENTS = Listed("orders", 2, 7, "Ongoing"), Listed("payments", 1, 8, "Empty")


class TwoBrokers(Cluster):
    """Each lists one id, unless a code, a fault or an answer is planned: then it answers with the
    next one of those, and the last again and again. In t-0, which broker 1 leads, producer 7 has
    a transaction open."""

    def __init__(self, planned=None):
        super().__init__("127.0.0.1:1", deadline_seconds=5)
        self.brokers = {each: BrokerAddress(each, "127.0.0.1", each, None) for each in (1, 2)}
        self.planned = planned or {}
        self.asked = []

    async def metadata(self, _topics):
        pass

    async def topic(self, name):
        if name == TRANSACTION_TOPIC:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is none.")
        return MetadataResponseTopic(partitions=[MetadataResponsePartition(leader_id=1)])

    async def send_to(self, broker_id, message):
        if isinstance(message, DescribeProducersRequest):
            open_ = ProducerState(producer_id=7, last_timestamp=1, current_txn_start_offset=3)
            answer = PartitionResponse(active_producers=[open_])
            return DescribeProducersResponse(topics=[TopicResponse("t", [answer])])
        assert isinstance(message, ListTransactionsRequest)
        self.asked.append(broker_id)
        planned = self.planned.get(broker_id, [ErrorCode.NONE])
        code = planned.pop(0) if len(planned) > 1 else planned[0]
        if isinstance(code, Exception):
            raise code
        if isinstance(code, ListTransactionsResponse):
            return code
        if code:
            return ListTransactionsResponse(error_code=code)
        name, _, producer_id, state = ORDERS if broker_id == 2 else PAYMENTS
        known = [TransactionState(name, producer_id, state)]
        if message.producer_id_filters and producer_id not in message.producer_id_filters:
            known = []
        return ListTransactionsResponse(transaction_states=known)


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    for module in (transactions, every_broker):
        monkeypatch.setattr(module, "PASS_OVER_SECONDS", 0.05)


async def test_ids_of_all_brokers_are_listed_by_name():
    assert await list_transactions(TwoBrokers()) == ([ORDERS, PAYMENTS], {})


@pytest.mark.parametrize("fault", [LOADING, ConnectionLost("it is gone")])
async def test_a_broker_that_cannot_answer_keeps_back_its_own_ids_only(fault):
    cluster = TwoBrokers({1: [fault]})
    found, faults = await list_transactions(cluster)
    assert (found, list(faults)) == ([ORDERS], [1])
    assert cluster.asked.count(1) > 1, "it may be a matter of moments"


async def test_what_a_broker_has_read_is_listed_while_it_reads_the_rest():
    read = TransactionState("read", 9, "Empty")
    part = ListTransactionsResponse(error_code=LOADING, transaction_states=[read])
    found, faults = await list_transactions(TwoBrokers({1: [part]}))
    assert (found, list(faults)) == ([ORDERS, Listed("read", 1, 9, "Empty")], [1])
    found, faults = await list_transactions(TwoBrokers({1: [part, ErrorCode.NONE]}))
    assert (found, faults) == ([ORDERS, PAYMENTS], {})


async def test_who_took_over_what_a_broker_had_is_asked_again():
    """It is gone from the metadata, and with it the ids that it could not tell yet."""
    cluster = TwoBrokers({1: [LOADING]})
    taken = ListTransactionsResponse(
        transaction_states=[
            TransactionState(name, number, state) for name, _, number, state in (ORDERS, PAYMENTS)
        ]
    )
    ask = cluster.send_to

    async def send_to(broker_id, message):
        answer = await ask(broker_id, message)
        if broker_id == 2:  # broker 1 dies after this round
            cluster.brokers.pop(1, None)
            cluster.planned[2] = [taken]
        return answer

    cluster.send_to = send_to
    found, faults = await list_transactions(cluster)
    assert ([each.transactional_id for each in found], faults) == (["orders", "payments"], {})


async def test_a_broker_that_can_answer_soon_is_waited_for():
    assert await list_transactions(TwoBrokers({1: [LOADING, ErrorCode.NONE]})) == (
        [ORDERS, PAYMENTS],
        {},
    )


async def test_a_refusal_is_raised_though_another_broker_cannot_answer():
    cluster = TwoBrokers({1: [LOADING], 2: [ErrorCode.INVALID_REGULAR_EXPRESSION]})
    with pytest.raises(ApiError, match=r"Pattern '\('"):
        await list_transactions(cluster, pattern="(")


async def found_hanging(cluster):
    passed = []
    found = await find_hanging(
        cluster, [("t", 0)], now_ms=1_000_000, longest_ms=0, pass_over=passed.append
    )
    return [each.producer_id for each in found], passed


async def test_a_transaction_that_a_silent_broker_may_know_is_named_and_not_listed():
    found, passed = await found_hanging(TwoBrokers({2: [LOADING]}))
    assert found == []
    (said,) = passed
    assert said.startswith("t-0, producer 7: its coordinator may be broker 2: ")
    assert said.endswith("(COORDINATOR_LOAD_IN_PROGRESS)")
    with pytest.raises(ApiError) as raised:
        await find_hanging(TwoBrokers({2: [LOADING]}), [("t", 0)], now_ms=1_000_000, longest_ms=0)
    assert raised.value.code is LOADING
