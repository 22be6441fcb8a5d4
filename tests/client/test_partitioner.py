"""Keys go where Kafka's Java producer puts them: murmur2 beside kafka-python's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from anabranch.client.partitioner import murmur2, partition_for


@given(st.binary(max_size=70))
def test_the_hash_is_the_one_of_kafka_python(key):
    assert murmur2(key) & 0xFFFFFFFF == kafka_python_murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize("length", range(9))
def test_every_length_of_the_tail_agrees_also_with_high_bytes(length):
    key = bytes(range(255, 255 - length, -1))
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_the_partition_is_the_one_of_a_java_producer(key, count):
    expected = (kafka_python_murmur2(key) & 0x7FFFFFFF) % count
    assert partition_for(key, count) == expected
    assert 0 <= partition_for(key, count) < count
