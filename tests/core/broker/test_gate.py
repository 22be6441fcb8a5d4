"""The gate: what its tables say is what handlers ask, and its sessions go one way."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.api import test_any_request as any_request
from tests.core.api.in_memory_node import InMemoryNode
from tests.core.controller.world import World

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.api import p03_metadata, p60_describe_cluster, p75_describe_topic_partitions
from anabranch.core.api.registry import handlers
from anabranch.core.broker.gate import (
    Charge,
    Need,
    Session,
    SessionEvent,
    SessionState,
    Taken,
    Verdict,
    admit,
    charge,
    mute,
)
from anabranch.core.errors import ApiError, Bug
from anabranch.core.outcome import Accept, Propose
from anabranch.core.request import Request
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.core.wire.messages.sasl_authenticate import SaslAuthenticateResponse

ALICE = Principal("User", "alice")
SELDOM = {
    Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID): (0,),
    Need(Operation.DESCRIBE, ResourceType.TOPIC): (9, 65),
    Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID): (66,),
    Need(Operation.DESCRIBE, ResourceType.GROUP): (16,),
    Need(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC): (19,),
    Need(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP): (32,),
    Need(Operation.ALTER_CONFIGS, ResourceType.GROUP): (33, 44),
    Need(Operation.READ, ResourceType.TOPIC): (47,),
    Need(Operation.CREATE_TOKENS, ResourceType.USER): (38,),
    Need(Operation.DESCRIBE_TOKENS, ResourceType.USER): (41,),
    Need(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN): (41,),
}
"""Needs that a request made at random does not come to: there has to be a group, a
transaction, a mark, or a login."""


class Noting:
    """Allows at random, and notes what it was asked."""

    allows_all = False

    def __init__(self, seed):
        self.random, self.asked = Random(seed), set()

    def authorize(self, _request, operation, resource, _name):
        self.asked.add(Need(operation, resource))
        return self.random.random() < 0.5

    def authorize_by_type(self, request, operation, resource):
        return self.authorize(request, operation, resource, "")


def asked_of_a_broker(key, run):
    maker, node = any_request.Maker(key), InMemoryNode()
    maker.ids += [node.topic("t", 3), node.topic("u", configs={"cleanup.policy": "compact"})]
    node.broker.authorizer = noting = Noting(key)
    for request in any_request.requests(maker, key, "PLAINTEXT"):
        try:
            any_request.final(run(node.broker, request, node.now_ms), node.now_ms)
        except ApiError:
            continue
    return noting.asked


def asked_of_a_controller(key, run):
    maker, world = any_request.Maker(1000 + key), World(key)
    world.start(1, 2)
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in "tu"]
    maker.ids += [each.topic_id for each in world.ask(CreateTopicsRequest(topics=topics)).topics]
    world.controller.authorizer = noting = Noting(key)
    for request in any_request.requests(maker, key, "CONTROLLER"):
        try:
            outcome = run(world.controller, request, world.now_ms)
        except ApiError:
            continue
        if isinstance(outcome, Propose):
            world.commit(outcome.result.records)
    return noting.asked


@pytest.mark.parametrize("key", sorted(handlers()))
def test_a_handler_asks_for_what_its_table_names(key, monkeypatch):
    """Also nothing else: a table that names too much would refuse what is allowed."""
    for module in (p03_metadata, p60_describe_cluster, p75_describe_topic_partitions):
        monkeypatch.setattr(module, "authorized_operations", lambda *_a, **_k: 0)
    handler, asked = handlers()[key], set()
    if handler.broker is not None:
        asked |= asked_of_a_broker(key, handler.broker)
    if handler.controller is not None:
        asked |= asked_of_a_controller(key, handler.controller)
    seldom = {need for need, keys in SELDOM.items() if key in keys}
    assert asked <= set(handler.needs)
    assert set(handler.needs) - asked <= seldom


def test_only_what_opens_a_session_is_asked_before_there_is_one():
    assert [key for key, handler in handlers().items() if handler.opens_session] == [17, 18, 36]


def test_what_brokers_ask_of_each_other_is_exempt():
    """And only that, beside logins: a client's request is charged for the time that it takes, at least."""
    action = Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    for handler in handlers().values():
        is_exempt = handler.needs == (action,) or handler.name.startswith("Sasl")
        assert (handler.charge is Charge.EXEMPT) == is_exempt, handler.name


def test_a_listener_where_all_may_speak_restricts_nobody():
    session = Session(ANONYMOUS)
    assert not session.is_restricted
    assert admit(session, opens_session=False, now_ms=0) is Verdict.ADMIT


def test_a_session_opens_expires_and_is_renewed():
    session = Session(ANONYMOUS, is_restricted=True)
    told = [(admit(session, opens_session=opens, now_ms=0)) for opens in (True, False)]
    assert told == [Verdict.ADMIT, Verdict.CLOSE]
    session.accept(ALICE, expires_ms=100)
    assert session.principal == ALICE
    assert admit(session, opens_session=False, now_ms=99) is Verdict.ADMIT
    told = [admit(session, opens_session=opens, now_ms=100) for opens in (False, True)]
    assert told == [Verdict.CLOSE, Verdict.ADMIT]
    assert session.state is SessionState.EXPIRED
    session.accept(ALICE)
    assert admit(session, opens_session=False, now_ms=10**12) is Verdict.ADMIT


@pytest.mark.parametrize("state", [SessionState.HANDSHAKE, SessionState.EXPIRED])
def test_time_is_over_for_an_open_session_alone(state):
    session = Session(ANONYMOUS, is_restricted=True)
    session.state = state
    with pytest.raises(Bug):
        session.step(SessionEvent.TIME_OVER)


class Limits:
    """So many milliseconds of rest a unit; notes what was charged."""

    def __init__(self, *, may_take_back=True):
        self.charged, self.may_take_back = [], may_take_back

    def charge(self, principal, client_id, kind, amount, _now_ms):
        self.charged.append((principal, client_id, kind, amount))
        return int(amount)

    def take_back(self, principal, client_id, kind, amount, _now_ms):
        self.charged.remove((principal, client_id, kind, amount))
        return self.may_take_back


ASKED = Request(0, 9, 0, "c", None, ALICE, "L", "::1", 1)


def test_a_connection_rests_as_long_as_it_is_told():
    session = Session(ANONYMOUS)
    mute(session, 0, now_ms=10)
    assert not session.is_restricted
    mute(session, 30, now_ms=10)
    mute(session, 5, now_ms=12)
    assert session.is_restricted
    told = [admit(session, opens_session=False, now_ms=now_ms) for now_ms in (39, 40)]
    assert told == [Verdict.WAIT, Verdict.ADMIT]


@pytest.mark.parametrize("kind", Charge)
def test_time_is_charged_and_bytes_for_records(kind):
    limits = Limits()
    rest = charge(limits, ASKED, kind, Taken(300, 500, 20_000_000), 0)
    charged = [(Charge.REQUEST, 2.0)]
    charged += {Charge.PRODUCE: [(kind, 300)]}.get(kind, [])
    if kind is Charge.EXEMPT:
        charged = []
    assert limits.charged == [(ALICE, "c", *each) for each in charged]
    assert rest.rest_ms == {Charge.PRODUCE: 300, Charge.FETCH: 500, Charge.EXEMPT: 0}.get(kind, 2)
    assert rest.is_empty == (kind is Charge.FETCH)


def test_an_answer_that_must_be_sent_is_sent_and_counted():
    rest = charge(Limits(may_take_back=False), ASKED, Charge.FETCH, Taken(1, 500, 0), 0)
    assert (rest.rest_ms, rest.is_empty) == (500, False)


def test_handlers_see_the_session_and_an_outcome_has_it_accept_the_peer():
    """As a handler of SaslAuthenticate gives it; whoever runs it does what is done here."""
    session = Session(ANONYMOUS, is_restricted=True)
    request = Request(36, 2, 0, "c", None, session.principal, "L", "::1", 1, session)

    def authenticates(asked):
        assert asked.session.principal == ANONYMOUS
        return Accept(ALICE, 70, SaslAuthenticateResponse(session_lifetime_ms=60))

    outcome = authenticates(request)
    assert admit(session, opens_session=False, now_ms=10) is Verdict.CLOSE
    session.accept(outcome.principal, outcome.expires_ms)
    assert (request.session.principal, request.session.expires_ms) == (ALICE, 70)
    assert admit(session, opens_session=False, now_ms=69) is Verdict.ADMIT
    assert admit(session, opens_session=False, now_ms=70) is Verdict.CLOSE
    assert admit(session, opens_session=True, now_ms=70) is Verdict.ADMIT
