"""How many partitions the sessions of a broker hold, and who goes for others."""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from anabranch.core.api import fetch_sessions
from anabranch.core.api.fetch_sessions import EVICTION_MS, FetchSessions, Wanted, _worth
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.messages.fetch import FetchPartition, ForgottenTopic

SLOTS, OF_CLIENTS, OF_FOLLOWERS = 8, 100, 200


def sessions_of(rng=None):
    return FetchSessions(SLOTS, rng or Random(1), OF_CLIENTS, OF_FOLLOWERS)


def named(topic, indexes):
    return [(topic, ZERO_TOPIC_ID, FetchPartition(partition=index)) for index in indexes]


def begin(sessions, topic, count, now_ms=0, privileged=False):
    return sessions.begin(
        [Wanted(*each) for each in named(topic, range(count))],
        privileged=privileged, uses_topic_ids=False, now_ms=now_ms,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_no_more_partitions_are_held_than_may_be_whatever_clients_do(seed):
    rng = Random(seed)
    sessions = sessions_of(rng)
    now_ms = 0
    for step in range(400):
        now_ms += rng.choice([0, 10, EVICTION_MS // 4, EVICTION_MS + 1])
        alive = list(sessions)
        session = rng.choice(alive) if alive else None
        act = rng.random()
        if act < 0.4 or session is None:
            begin(sessions, f"t{step}", rng.randint(1, 120), now_ms, rng.random() < 0.3)
        elif act < 0.6:
            with contextlib.suppress(ApiError):
                sessions.change(session, named(f"t{step}", range(rng.randint(1, 60))), [])
        elif act < 0.8:
            topics = {topic for topic, _ in session.partitions}
            gone = [ForgottenTopic(topic=each, partitions=list(range(30))) for each in topics]
            sessions.change(session, [], gone)
        else:
            sessions.close(session.session_id)
        held = [[], []]
        for each in sessions:
            held[each.privileged].append(len(each.partitions))
        assert sum(held[0]) <= OF_CLIENTS
        assert sum(held[1]) <= OF_FOLLOWERS
        assert sessions.statistics()["partitions"] == sum(held[0]) + sum(held[1])
        assert len(sessions) <= SLOTS


def test_a_client_whose_partitions_do_not_fit_has_no_session():
    sessions = sessions_of()
    kept = begin(sessions, "kept", 60)
    assert begin(sessions, "more", 41, now_ms=EVICTION_MS) is None
    assert begin(sessions, "huge", OF_CLIENTS + 1, now_ms=EVICTION_MS + 1) is None
    assert list(sessions) == [kept]
    assert begin(sessions, "fits", 40) is not None


def test_sessions_that_were_not_used_for_long_go_for_others():
    sessions = sessions_of()
    old = [begin(sessions, f"old{each}", 25) for each in range(3)]
    used = begin(sessions, "used", 25)
    used.last_used_ms = EVICTION_MS
    new = begin(sessions, "new", 60, now_ms=EVICTION_MS + 1)
    assert list(sessions) == [used, new]
    assert sessions.evictions == len(old)


def test_many_sessions_go_for_a_large_one_at_a_look_at_each(monkeypatch):
    """With a comparison of all for each that goes, a request could keep the loop for seconds."""
    looks = []

    def worth(session):
        looks.append(session)
        return _worth(session)

    monkeypatch.setattr(fetch_sessions, "_worth", worth)
    sessions = FetchSessions(2000, Random(0), 1000, 0)
    small = [begin(sessions, f"small{each}", 1) for each in range(1000)]
    for each in small:
        each.last_used_ms = EVICTION_MS
    large = begin(sessions, "large", 1000, now_ms=EVICTION_MS + 1)
    assert list(sessions) == [large]
    assert len(looks) <= 2 * len(small)


def test_followers_have_room_of_their_own():
    sessions = sessions_of()
    client = begin(sessions, "c", OF_CLIENTS)
    follower = begin(sessions, "f", OF_FOLLOWERS, privileged=True)
    assert list(sessions) == [client, follower]
    later_ms = EVICTION_MS + 1
    assert begin(sessions, "d", OF_CLIENTS, now_ms=later_ms) is not None
    assert next(iter(sessions)) is follower


def test_a_session_that_grows_beyond_the_room_ends_and_its_client_is_told():
    sessions = sessions_of()
    session = begin(sessions, "t", 90)
    sessions.change(session, named("u", range(10)), [])
    with pytest.raises(ApiError) as refused:
        sessions.change(session, named("v", [1]), [])
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not len(sessions)
    assert sessions.statistics()["partitions"] == 0
