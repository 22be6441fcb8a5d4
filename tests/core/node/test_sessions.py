"""A peer that has shown who it is: from then on, and until its time is over, its requests are run.

Random over when it does so, for how long that holds, whether its answer is there at once, and what
it asks before, between and afterwards.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.core.node.link_kit import Asked, World, frame_of, old_frame_of

from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Session
from anabranch.core.outcome import Accept, Wait
from anabranch.core.types import NO_TIME_MS
from anabranch.core.wire.frame import frame_request
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

AUTHENTICATE = 36


class SecureWorld(World):
    """A role on whose listener peers must show who they are."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, Principal]] = []
        self.accepts: list[tuple[Principal, int, bool]] = []
        self.requests._handlers[AUTHENTICATE] = Handler(
            AUTHENTICATE, "SaslAuthenticate", API_KEYS[AUTHENTICATE].versions,
            broker=self.authenticate, opens_session=True,
        )  # fmt: skip

    def handle(self, world, request, now_ms):
        assert request.session.principal == request.principal
        self.seen.append((request.correlation_id, request.principal))
        return super().handle(world, request, now_ms)

    def authenticate(self, _world, request, now_ms):
        principal, expires_ms, is_late = self.accepts.pop(0)
        accept = Accept(principal, expires_ms, SaslAuthenticateResponse())
        if not is_late:
            return accept
        return Wait(("news",), now_ms + 50, lambda _now, _expired: accept, holds_up=True)


def asks_who(number: int) -> memoryview:
    pieces = frame_request(number, "c", SaslAuthenticateRequest(auth_bytes=b""), 0)
    return memoryview(bytearray(b"".join(map(bytes, pieces))[4:]))


@pytest.mark.parametrize("seed", range(100))
def test_requests_are_run_as_whoever_the_peer_has_shown_to_be(seed: int) -> None:
    random, world = Random(seed), SecureWorld()
    channel, link, said = world.connect()
    channel.session = Session(ANONYMOUS, is_restricted=True)
    who, until_ms, expected = None, NO_TIME_MS, []
    for number in range(1, 31):
        act = random.choice(["authenticate", "ask", "ask", "versions", "pass"])
        if act == "authenticate":
            who = Principal("User", random.choice("ab"))
            until_ms = random.choice([NO_TIME_MS, world.clock_ms + random.randint(60, 300)])
            world.accepts.append((who, until_ms, random.random() < 0.5))
            world.receive(channel, asks_who(number))
            world.wake()
        elif act == "versions":
            world.receive(channel, old_frame_of(number))
        elif act == "pass":
            world.pass_time(random.randint(1, 100))
        else:
            is_open = who is not None and not NO_TIME_MS != until_ms <= world.clock_ms
            world.receive(channel, frame_of(number, Asked("now")))
            if not is_open:
                assert len(said) == 1 and channel.closing
                break
            expected.append((number, who))
        assert not said, said
    assert world.seen == expected
    assert (channel.session.principal, channel.session.expires_ms) == (who or ANONYMOUS, until_ms)
    assert link.wrongs == []
