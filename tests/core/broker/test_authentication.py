"""Logins over requests: order, versions, mechanisms, renewal and refusal, drawn at random.

A client sends requests in any order and any version, over `Requests` and a channel in memory; a model says
what it must be answered.
"""

from __future__ import annotations

import struct
from random import Random

import pytest
from tests.core.node.link_kit import CLUSTER, Asked, World, frame_of

from anabranch.core.access.bearer import BearerServer, TokenRefused, TokenRules
from anabranch.core.access.plain import PlainServer
from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.api import p17_sasl_handshake, p36_sasl_authenticate
from anabranch.core.broker.authentication import Logins
from anabranch.core.broker.gate import Session
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.frame import frame_request
from anabranch.core.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from anabranch.core.wire.messages.sasl_handshake import SaslHandshakeRequest

USERS = {"alice": b"a", "bob": b"b"}
LIFETIME_MS = 1_000


def refused(_token):
    """No token is good."""
    raise TokenRefused("its signature is wrong")


class SaslWorld(World):
    """A role on whose one listener clients log in."""

    def __init__(self, lifetime_ms=0, delay_ms=0):
        super().__init__()
        begin = {
            "PLAIN": lambda: PlainServer(USERS),
            "OAUTHBEARER": lambda: BearerServer(refused, TokenRules()),
        }
        self.logins = {"": Logins(begin, {"PLAIN": lifetime_ms}, delay_ms)}
        self.seen = []
        self.requests.world = self
        handlers = self.requests._handlers
        handlers[17], handlers[36] = p17_sasl_handshake.HANDLER, p36_sasl_authenticate.HANDLER
        self.steady_ms = 0

    def handle(self, world, request, now_ms):
        self.seen.append(request.principal.name)
        return super().handle(world, request, now_ms)

    def secure(self):
        channel, link, said = self.connect()
        channel.session = Session(ANONYMOUS, is_restricted=True)
        self.logins[channel.listener] = self.logins[""]
        return channel, link, said


def framed(number, message, version):
    pieces = frame_request(number, "c", message, version)
    return memoryview(bytearray(b"".join(map(bytes, pieces))[4:]))


def shake(number, mechanism="PLAIN", version=1):
    return framed(number, SaslHandshakeRequest(mechanism=mechanism), version)


def token(number, user, password, version=0):
    message = f"\0{user}\0{password}".encode()
    return framed(number, SaslAuthenticateRequest(auth_bytes=message), version)


def answers(link):
    """The bodies of what the peer was sent: size, correlation id, the rest."""
    link.take(1 << 20)
    found, at, data = [], 0, bytes(link.taken)
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def code_of(answer):
    return struct.unpack_from(">h", answer, 4)[0]


def test_nothing_is_run_before_a_login():
    world = SaslWorld()
    channel, link, said = world.secure()
    world.receive(channel, frame_of(1, Asked("now")))
    assert link.closed and not world.seen and "session that is handshake" in said[0][0]


@pytest.mark.parametrize("version", range(3))
def test_requests_are_run_as_the_user_after_a_login(version):
    world = SaslWorld()
    channel, link, _ = world.secure()
    world.receive(channel, shake(1))
    if version < 2:
        world.receive(channel, token(2, "alice", "a", version))
    else:
        pieces = frame_request(2, "c", SaslAuthenticateRequest(auth_bytes=b"\0alice\0a"), 2)
        world.receive(channel, memoryview(bytearray(b"".join(map(bytes, pieces))[4:])))
    world.receive(channel, frame_of(3, Asked("now")))
    assert world.seen == ["alice"] and len(answers(link)) == 3 and not link.closed
    assert world.requests.logins[channel.listener, True] == 1


def test_messages_without_headers_are_understood_after_version_0():
    world = SaslWorld()
    channel, link, _ = world.secure()
    world.receive(channel, shake(1, version=0))
    world.receive(channel, memoryview(bytearray(b"\0bob\0b")))
    world.receive(channel, frame_of(3, Asked("now")))
    found = answers(link)
    assert found[1] == b"", "the answer has no header either"
    assert world.seen == ["bob"] and len(found) == 3


def test_a_refusal_without_headers_only_closes():
    world = SaslWorld()
    channel, link, said = world.secure()
    world.receive(channel, shake(1, version=0))
    world.receive(channel, memoryview(bytearray(b"\0bob\0wrong")))
    assert len(answers(link)) == 1 and link.closed == "in order"
    assert "refused" in said[0][0] and "wrong'" not in said[0][0]


def test_a_refusal_is_answered_after_a_while_and_then_the_connection_is_closed():
    world = SaslWorld(delay_ms=100)
    channel, link, _ = world.secure()
    world.receive(channel, shake(1))
    world.receive(channel, token(2, "alice", "wrong"))
    world.receive(channel, token(3, "alice", "a"))
    world.receive(channel, frame_of(4, Asked("now")))
    assert len(answers(link)) == 1 and not link.closed
    world.pass_time(101)
    found = answers(link)
    assert code_of(found[1]) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert len(found) == 2 and link.closed == "in order" and not world.seen
    assert world.requests.logins[channel.listener, False] == 1


@pytest.mark.parametrize("delay_ms", [0, 100])
@pytest.mark.parametrize("wrong", ["password", "mechanism", "order"])
def test_nothing_that_came_with_a_refused_login_is_run(delay_ms, wrong):
    """One read of the socket may bring many guesses: a connection has one."""
    world = SaslWorld(delay_ms=delay_ms)
    channel, link, said = world.secure()
    begin = {
        "password": [shake(1), token(2, "alice", "x")], "mechanism": [shake(1, "GSSAPI")],
        "order": [token(1, "alice", "a")],
    }[wrong]  # fmt: skip
    guesses = [shake(3), token(4, "alice", "y"), token(5, "alice", "a"), frame_of(6, Asked("now"))]
    world.receive(channel, *begin, *guesses)
    world.pass_time(101)
    assert link.closed == "in order" and not world.seen and len(said) == 1
    assert not channel.session.is_begun and channel.received_requests == len(begin)
    assert world.requests.logins.total() == (wrong != "order")


@pytest.mark.parametrize("delay_ms", [0, 100])
@pytest.mark.parametrize("is_bare", [False, True])
@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
@pytest.mark.parametrize("then", ["leaves", "waits", "begins again", "goes on"])
def test_a_refused_login_is_counted_once_whenever_its_client_leaves(
    mechanism, is_bare, delay_ms, then
):
    """A client knows soon that it is refused, by an answer that does not come or by one of RFC
    7628: if it leaves then, its guess has been one."""
    world = SaslWorld(delay_ms=delay_ms)
    channel, link, said = world.secure()
    first, last = b"\0alice\0wrong", b"\x01"
    if mechanism == "OAUTHBEARER":
        first = b"n,,\x01auth=Bearer wrong\x01\x01"
    sent = [first] + [last] * (then == "goes on")
    world.receive(channel, shake(1, mechanism, version=not is_bare))
    for number, each in enumerate(sent, 2):
        message = framed(number, SaslAuthenticateRequest(auth_bytes=each), 0)
        if not link.closed:
            world.receive(channel, memoryview(bytearray(each)) if is_bare else message)
    if then == "begins again" and not link.closed:
        world.receive(channel, shake(9, mechanism))
    if then != "leaves":
        world.pass_time(101)
    world.step(channel.lost)
    assert world.requests.logins == {(channel.listener, False): 1}
    assert "refused" in said[-1][0] and len(said) in (1, 1 + (then == "begins again"))


def test_another_mechanism_is_answered_with_those_there_are():
    world = SaslWorld()
    channel, link, _ = world.secure()
    world.receive(channel, shake(1, "SCRAM-SHA-256"))
    sent = answers(link)
    assert len(sent) == 1
    (found,) = sent
    assert code_of(found) == ErrorCode.UNSUPPORTED_SASL_MECHANISM and b"PLAIN" in found
    assert link.closed == "in order"


@pytest.mark.parametrize("requests", [["token"], ["shake", "shake"]])
def test_another_order_closes(requests):
    world = SaslWorld()
    channel, link, _ = world.secure()
    for number, each in enumerate(requests):
        world.receive(channel, shake(number) if each == "shake" else token(number, "alice", "a"))
    assert link.closed and len(answers(link)) == len(requests) - 1


def test_a_listener_without_logins_says_so():
    world = SaslWorld()
    channel, link, _ = world.connect()
    world.logins.clear()
    world.receive(channel, shake(1))
    world.receive(channel, token(2, "alice", "a"))
    assert {code_of(each) for each in answers(link)} == {ErrorCode.ILLEGAL_SASL_STATE}
    assert not link.closed


@pytest.mark.parametrize("seed", range(150))
def test_any_order_of_logins_and_requests(seed):
    """A model of one connection: who it is, until when, and what closes it."""
    random = Random(seed)
    lifetime_ms = random.choice([0, LIFETIME_MS])
    world = SaslWorld(lifetime_ms, delay_ms=random.choice([0, 50]))
    channel, link, _ = world.secure()
    who, until_ms, under_way, is_bare, seen = None, None, False, False, []
    for number in range(1, 40):
        act = random.choice(["ask", "ask", "shake", "token", "token", "pass"])
        if random.random() < 0.9:  # what a client does that keeps to the order
            act = "token" if under_way else random.choice(["shake", "ask"]) if who else "shake"
        if act == "pass":
            world.pass_time(random.choice([10, 300, LIFETIME_MS]))
            world.steady_ms = world.clock_ms
            continue
        world.steady_ms = world.clock_ms
        is_over = until_ms is not None and until_ms <= world.clock_ms
        is_good = who is not None and until_ms is None
        closes = False
        if is_bare and under_way:
            act = "token"
        if act == "ask":
            world.receive(channel, frame_of(number, Asked("now")))
            closes = who is None or is_over
            if not closes:
                seen.append(who)
        elif act == "shake":
            version = random.choice([0, 1])
            world.receive(channel, shake(number, version=version))
            closes = under_way
            if not is_good and not closes:
                under_way, is_bare = True, version == 0
        else:
            user, password = random.choice([*[("alice", "a")] * 6, ("bob", "b"), ("alice", "x")])
            if is_bare and under_way:
                world.receive(channel, memoryview(bytearray(f"\0{user}\0{password}".encode())))
            else:
                world.receive(channel, token(number, user, password))
            if not under_way:
                closes = not is_good
            elif password == "x" or who not in (None, user):
                closes = True
                world.pass_time(60)
            else:
                who, under_way = user, False
                until_ms = world.clock_ms + lifetime_ms if lifetime_ms else None
        assert world.seen == seen
        assert bool(link.closed) == closes, f"{act} {number}"
        if closes:
            return
        if who is not None:
            assert channel.session.principal == Principal("User", who)


def test_the_answer_tells_how_long_the_session_is_good():
    world = SaslWorld(LIFETIME_MS)
    channel, link, _ = world.secure()
    world.receive(channel, shake(1))
    world.receive(channel, token(2, "alice", "a", 1))
    assert struct.unpack(">q", answers(link)[1][-8:])[0] == LIFETIME_MS
    assert CLUSTER == 60
