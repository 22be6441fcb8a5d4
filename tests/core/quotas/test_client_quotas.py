"""Users × client ids × quotas × requests, against a model; and what is kept of them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from tests.core.controller.test_client_quotas import alter
from tests.core.controller.world import World

from anabranch.core.access.principal import Principal
from anabranch.core.broker.gate import Charge
from anabranch.core.errors import ErrorCode
from anabranch.core.quotas.client_quotas import IDLE_MS, ClientQuotas
from anabranch.core.quotas.limits import limit_of
from anabranch.core.quotas.rates import Rate
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

KINDS = (Charge.PRODUCE, Charge.FETCH, Charge.REQUEST)
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def machine(quotas=None, most=100, **settings) -> ClientQuotas:
    config = BrokerConfig.of({name.replace("_", "."): value for name, value in settings.items()})
    made = ClientQuotas(config, most)
    made.follow(Map() if quotas is None else quotas)
    return made


def any_quotas(random):
    """Quotas of some entities."""
    image = Map()
    for _ in range(random.randrange(8)):
        names = {}
        if random.random() < 0.7:
            names["user"] = random.choice((None, "a", "b"))
        if not names or random.random() < 0.5:
            names["client-id"] = random.choice((None, "x", "y"))
        keys = random.sample([kind.value for kind in KINDS], random.choice((1, 2, 3)))
        values = Map({key: random.choice((1.0, 50.0, 1_000.0, 1e6)) for key in keys})
        image = image.set(tuple(sorted(names.items())), values)
    return image


@pytest.mark.parametrize("seed", range(40))
def test_each_client_rests_as_if_its_usage_alone_were_counted(seed):
    """Quotas change meanwhile. The model: a rate for each user and client id that a quota names."""
    random = Random(seed)
    quotas = machine(any_quotas(random))
    model: dict[tuple, Rate] = {}
    now_ms, image = 0, quotas._quotas
    for _ in range(400):
        now_ms += random.choice((0, 1, 100, 1_000, 15_000))
        if random.random() < 0.02:
            image = any_quotas(random)
            quotas.follow(image)
        user, client = random.choice("abc"), random.choice(("x", "y", "z", "", None))
        kind, amount = random.choice(KINDS), random.choice((0.5, 10, 3_000, 1e6))
        limit = limit_of(image, kind.value, user, client or "")
        expected = 0
        if limit is not None:
            rate = model.setdefault((kind, limit.user, limit.client_id), Rate())
            rate.record(amount, now_ms, quotas.window)
            expected = rate.rest_ms(limit.value, now_ms, quotas.window)
            expected = min(expected, 1_000) if kind is Charge.REQUEST else expected
        found = quotas.charge(Principal("User", user), client, kind, amount, now_ms)
        assert found == expected
        if found and random.random() < 0.5 and limit is not None:
            must_be_sent = (
                kind is Charge.FETCH and rate.total <= amount and amount > limit.value * 10
            )
            taken_back = quotas.take_back(Principal("User", user), client, kind, amount, now_ms)
            if kind is Charge.FETCH:
                assert taken_back is not must_be_sent
            if taken_back:
                rate.record(-amount, now_ms, quotas.window)


ALICE = Principal("User", "alice")


def of(**values):
    return Map({(("user", None),): Map(values)})


def test_usage_is_forgotten_after_an_hour_and_bounded():
    quotas = machine(of(producer_byte_rate=10.0))
    for index in range(300):
        quotas.charge(Principal("User", f"u{index}"), "c", Charge.PRODUCE, 1, 0)
    assert len(quotas._rates) == 100
    for index in range(60):
        quotas.charge(ALICE, "c", Charge.PRODUCE, 1, IDLE_MS + index)
    assert [each.user for each in quotas.series(IDLE_MS)] == ["alice"]


def test_who_is_limited_by_nothing_is_not_kept():
    quotas = machine(Map({(("user", "bob"),): Map({"producer_byte_rate": 1.0})}))
    assert quotas.charge(ALICE, "c", Charge.PRODUCE, 1e12, 0) == 0
    assert quotas.charge(Principal("User", "bob"), "c", Charge.FETCH, 1e12, 0) == 0
    assert list(quotas.series(0)) == []
    assert quotas.most_bytes(ALICE, "c") == float("inf")


def test_long_names_are_told_apart_and_kept_short():
    """A client may give itself names of 32 KB, a new one each time."""
    both = Map({(("client-id", None), ("user", None)): Map({"producer_byte_rate": 10.0})})
    quotas = machine(both)
    names = ["ü" * 32_000 + each for each in "ab"]
    for user in (ALICE, *(Principal("User", each) for each in names)):
        for client in names:
            assert quotas.charge(user, client, Charge.PRODUCE, 100, 0) == 0
            assert quotas.charge(user, client, Charge.PRODUCE, 100, 0) > 0
    told = list(quotas.series(0))
    assert len({(each.user, each.client_id) for each in told}) == 6
    assert all(len(each.user) + len(each.client_id) < 500 for each in told)
    assert {each.user for each in told} > {"alice"}


def test_windows_are_the_settings():
    quotas = machine(
        of(consumer_byte_rate=10.0), quota_window_num="3", quota_window_size_seconds="5"
    )
    assert quotas.most_bytes(ALICE, "") == 100
    assert quotas.charge(ALICE, None, Charge.FETCH, 100, 0) == 0
    assert quotas.charge(ALICE, None, Charge.FETCH, 10, 0) == 1_000


def test_series_tell_who_rested():
    quotas = machine(of(producer_byte_rate=10.0))
    rests = [quotas.charge(ALICE, "c", Charge.PRODUCE, 150, now_ms) for now_ms in (0, 5_000)]
    (told,) = quotas.series(5_000)
    assert (told.charge, told.user, told.client_id) == (Charge.PRODUCE, "alice", "")
    assert (told.used, round(told.throttle_time_ms)) == (30.0, sum(rests) / 2)
    (later,) = quotas.series(100_000)
    assert (later.used, later.throttle_time_ms) == (0, 0)


# Mutations of the controller.


def limited(rate: float, **settings: str) -> World:
    world = World(settings={name.replace("_", "."): text for name, text in settings.items()})
    world.start(1)
    alter(world, ({"user": None}, [("controller_mutation_rate", rate)]))
    return world


def create(world, *sizes, version=7):
    names = [f"t{len(world.image.topics_by_id)}-{index}" for index in range(len(sizes))]
    topics = [CreatableTopic(name, size, 1) for name, size in zip(names, sizes, strict=True)]
    answer = world.ask(CreateTopicsRequest(topics=topics), version)
    return [each.error_code for each in answer.topics], answer.throttle_time_ms, names


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9_000)), max_size=12))
def test_partitions_are_created_and_deleted_at_the_rate(steps):
    """Against a bucket: ten tokens at first, one a second; a topic may overdraw it once."""
    world = limited(1.0, controller_quota_window_num="10")
    tokens, last_ms = 10.0, world.now_ms
    for size, gap_ms in steps:
        world.now_ms += gap_ms
        tokens = min(10.0, tokens + (world.now_ms - last_ms) / 1_000)
        last_ms = world.now_ms
        (code,), rest_ms, (name,) = create(world, size)
        if tokens < 0:
            assert (code, rest_ms) == (EXCEEDED, int(-tokens * 1_000 + 0.5))
            continue
        assert (code, rest_ms) == (0, 0)
        tokens -= size
        answer = world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
        (deleted,) = answer.responses
        assert deleted.error_code == (EXCEEDED if tokens < 0 else 0)
        assert answer.throttle_time_ms == max(0, int(-tokens * 1_000 + 0.5))
        tokens -= 0 if tokens < 0 else size


def test_a_request_stops_where_the_quota_ends():
    world = limited(1.0, controller_quota_window_num="5")
    codes, rest_ms, names = create(world, 3, 4, 2)
    assert (codes, rest_ms) == ([0, 0, EXCEEDED], 2_000)
    grown = CreatePartitionsTopic(names[0], 4, None)
    answer = world.ask(CreatePartitionsRequest(topics=[grown]))
    assert answer.results[0].error_code == EXCEEDED
    assert answer.throttle_time_ms == 2_000


def test_older_versions_are_served_and_told_to_rest():
    world = limited(1.0, controller_quota_window_num="5")
    assert create(world, 8, version=5)[:2] == ([0], 3_000)
    assert create(world, 1, version=5)[:2] == ([0], 4_000)
    assert create(world, 1, version=6)[:2] == ([EXCEEDED], 4_000)


def test_without_a_quota_all_is_created():
    world = World()
    world.start(1)
    assert create(world, 400)[:2] == ([0], 0)
