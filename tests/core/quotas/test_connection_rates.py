"""Connections of addresses: those over the limit are held, and cost the others nothing."""

from __future__ import annotations

from collections import Counter
from random import Random

from immutables import Map

from anabranch.core.quotas.connection_rates import ConnectionRates
from anabranch.core.quotas.rates import Window

WINDOW = Window(11, 1_000)


def test_an_address_gets_its_rate_however_often_it_tries():
    random, rates = Random(1), ConnectionRates(WINDOW)
    rates.follow(Map({
        (("ip", "10.0.0.1"),): Map({"connection_creation_rate": 5.0}),
        (("ip", None),): Map({"connection_creation_rate": 20.0}),
    }))  # fmt: skip
    let_in = Counter()
    for now_ms in range(0, 60_000, 5):
        address = random.choice(("10.0.0.1", "10.0.0.2"))
        rest_ms = rates.rest_ms(address, now_ms)
        assert 0 <= rest_ms <= 1_000
        let_in[address] += not rest_ms
    assert 0.9 * 5 * 60 <= let_in["10.0.0.1"] <= 5 * 70
    assert 0.9 * 20 * 60 <= let_in["10.0.0.2"] <= 20 * 70


def test_without_a_quota_nothing_is_counted():
    rates = ConnectionRates(WINDOW)
    assert [rates.rest_ms("a", 0) for _ in range(1_000)] == [0] * 1_000
    rates.follow(Map({(("ip", "b"),): Map({"connection_creation_rate": 1.0})}))
    assert [rates.rest_ms("a", 0) for _ in range(1_000)] == [0] * 1_000
    assert not rates._rates


def test_addresses_are_bounded():
    rates = ConnectionRates(WINDOW, most_addresses=10)
    rates.follow(Map({(("ip", None),): Map({"connection_creation_rate": 1.0})}))
    for each in range(100):
        rates.rest_ms(f"10.0.0.{each}", 0)
    assert len(rates._rates) == 10
