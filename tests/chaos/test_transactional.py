"""R17: what a transactional client of chaos does when its library does not come back to it."""

from __future__ import annotations

import threading
import time
from random import Random

import pytest
from chaos.clients_transactional import ConfluentTransacting, NotReturnedError
from chaos.history import Place
from confluent_kafka import KafkaError, KafkaException

from chaos import client_logs, clients_transactional

OFFSETS = {Place("orders", 0): 7}


class Library:
    """A producer whose `send_offsets_to_transaction` does what it is told."""

    def __init__(self, _settings):
        self.asked = 0
        self.purged = 0
        self.aborted = 0
        self.outcomes = []

    def init_transactions(self, _seconds):
        return

    def send_offsets_to_transaction(self, _offsets, _metadata, _seconds):
        self.asked += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        outcome.wait()

    def abort_transaction(self, _seconds):
        self.aborted += 1

    def purge(self):
        self.purged += 1


@pytest.fixture
def producer(monkeypatch):
    monkeypatch.setattr(clients_transactional, "Producer", Library)
    monkeypatch.setattr(clients_transactional, "ASK_SECONDS", 0.05)
    monkeypatch.setattr(clients_transactional, "LATE_SECONDS", 0.05)
    return ConfluentTransacting("127.0.0.1:1", "x1", Random(1))


def test_a_producer_is_left_behind_when_a_call_does_not_return(producer, capfd, tmp_path):
    """librdkafka's issue 5511: nothing ends such a call, and any other is in conflict with it."""
    library, ends = producer._producer, threading.Event()
    library.outcomes = [ends]
    try:
        with pytest.raises(NotReturnedError):
            producer.offsets(OFFSETS, None)
        with pytest.raises(NotReturnedError):
            producer.abort()
        producer.close()
        assert (library.asked, library.aborted, library.purged) == (1, 0, 0)
        log = tmp_path / "x1.log"
        log.write_text(capfd.readouterr().err)
        assert client_logs.left_behind(log) == 1
    finally:
        ends.set()


def test_what_may_be_repeated_is_repeated_after_a_pause(producer, monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    library, ends = producer._producer, threading.Event()
    ends.set()
    again = KafkaException(KafkaError(KafkaError._TRANSPORT, "away", False, True))
    library.outcomes = [again, again, ends]
    producer.offsets(OFFSETS, None)
    assert library.asked == 3
    assert pauses == [clients_transactional.AGAIN_SECONDS] * 2


def test_what_may_not_be_repeated_is_raised(producer):
    producer._producer.outcomes = [KafkaException(KafkaError(KafkaError._FENCED))]
    with pytest.raises(KafkaException):
        producer.offsets(OFFSETS, None)
    producer.abort()
    producer.close()
    assert producer._producer.purged == producer._producer.aborted == 1
