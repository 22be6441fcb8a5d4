"""From a frame to its answer: header, version, session, decode, handler.

What: one `Requests` for each role of a node (broker, controller). Everything that one read of a
socket brought is one step (`core.step`): the clocks are read, each frame is handled, and what the
step left is drained. Why no object and no callback for a request that is answered at once, as
nearly all are: it costs a few microseconds.

Rules kept: a handler never waits; the gate is asked before it about a session that is restricted; a
request of a muted connection is run when the mute is over, before any other of that connection; an
unknown API key or version closes the connection as in Kafka, except ApiVersions, which is answered
in version 0 (KIP-511). Not here: what becomes of an outcome (`outcomes.py`), the order of one
connection's answers (`channel.py`), sockets, threads, clocks.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Any

from anabranch.core.access.authorize import Operation, cluster_allowed
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Verdict, admit
from anabranch.core.errors import ProtocolError
from anabranch.core.node.crowd import Crowd
from anabranch.core.node.outcomes import Outcomes, Shell
from anabranch.core.node.route import Route, Tokens, find_route, unsupported_api_versions
from anabranch.core.node.slot import Asker, Slot
from anabranch.core.outcome import NoAnswer, Wait
from anabranch.core.request import Request
from anabranch.core.step import Mailbox
from anabranch.core.types import Piece
from anabranch.core.wire.frame import read_client_id
from anabranch.core.wire.messages.sasl_authenticate import SaslAuthenticateRequest

PEEK = Struct(">hhi").unpack_from


class Requests(Outcomes):
    """Runs the requests of one role of a node, whose handlers are told `world`."""

    def __init__(
        self, role: str, world: Any, handlers: dict[int, Handler], shell: Shell, mailbox: Mailbox
    ) -> None:
        super().__init__(world, shell, mailbox)
        self.role = role
        self.crowd = Crowd()
        self.sent_bytes = self.received_bytes = 0
        self._handlers = handlers
        self._routes: dict[tuple[int, int], Route] = {}
        self._tokens: Tokens | None = None

    @property
    def routes(self) -> tuple[Route, ...]:
        """The API keys and versions asked for so far, with their counts."""
        return tuple(self._routes.values())

    def handle(self, asker: Asker, frame: memoryview) -> list[Piece] | Slot | None:
        """The answer to one frame, its place in the order, or None: the connection was closed."""
        session = asker.session
        if session.takes_tokens:
            return self._take_token(asker, frame)
        try:
            api_key, version, correlation_id = PEEK(frame)
        except error:
            asker.hang_up(f"a frame of {len(frame)} bytes is too short for a request header")
            return None
        route = self._routes.get((api_key, version))
        if route is None:
            found = find_route(self._handlers, self.role, api_key, version, asker.listener)
            if isinstance(found, str):
                asker.hang_up(found)
                return None
            if isinstance(found, Handler):
                return unsupported_api_versions(found, correlation_id)
            route = self._routes[api_key, version] = found
        if session.is_restricted:
            verdict = admit(session, opens_session=route.opens_session, now_ms=self.steady_ms)
            if verdict is Verdict.WAIT and not self.is_stopping:
                return self._mute(asker, frame)
            if verdict is Verdict.CLOSE:
                state = session.state.value
                asker.hang_up(f"{route.name} was asked on a session that is {state}")
                return None
        route.requests += 1
        self.received_bytes += len(frame)
        try:
            client_id, body_offset = read_client_id(frame, route.is_flexible)
            body, _ = route.decode(frame, body_offset)
        except ProtocolError as fault:
            asker.hang_up(f"bad {route.name} request: {fault}")
            return None
        request = Request(
            api_key, version, correlation_id, client_id, body, session.principal,
            asker.listener, asker.host, asker.identity, session,
        )  # fmt: skip
        began_ns = 0 if self.quotas is None else self._shell.now_ns()
        try:
            if route.of_broker is not None and route.of_broker(body) and not asker.is_broker:
                asker.is_broker = cluster_allowed(
                    self.world.authorizer, request, Operation.CLUSTER_ACTION
                )
            outcome = route.run(self.world, request, self.now_ms)
        except Exception as fault:
            outcome = fault
        stored_later_bytes = self.mailbox.stored_later_bytes
        if stored_later_bytes:
            self.mailbox.stored_later_bytes = 0
            self.crowd.brought(asker, is_crowded=self.mailbox.is_crowded)
        if outcome.__class__ is route.response:
            try:
                if self.quotas is None:
                    return route.frame(correlation_id, outcome)
                time_ns = self._shell.now_ns() - began_ns
                return self.framed(asker, route, request, outcome, len(frame), time_ns)
            except Exception as fault:
                outcome = fault
        slot = Slot(asker, route, request, frame)
        if self.quotas is not None:
            slot.time_ns = self._shell.now_ns() - began_ns
        if stored_later_bytes:  # they have a bound of their own, for all connections
            slot.size_bytes = max(0, slot.size_bytes - stored_later_bytes)
        self.resolve(slot, outcome)
        return slot

    def _take_token(self, asker: Asker, frame: memoryview) -> Slot:
        """A message of a login that has no header (SaslHandshake version 0)."""
        if self._tokens is None:
            self._tokens = Tokens(self._handlers, self.role)
        body = SaslAuthenticateRequest(auth_bytes=bytes(frame))
        request = Request(
            Tokens.API_KEY, 0, 0, None, body, asker.session.principal,
            asker.listener, asker.host, asker.identity, asker.session,
        )  # fmt: skip
        slot = Slot(asker, self._tokens, request, frame)
        try:
            outcome = self._tokens.run(self.world, request, self.now_ms)
        except Exception as fault:
            outcome = fault
        self.resolve(slot, outcome)
        return slot

    def _mute(self, asker: Asker, frame: memoryview) -> Slot:
        """A place in the order that holds up its connection, this request first, for the rest."""
        asker.put_back(frame)
        slot = Slot(asker, None, None, None)
        slot.is_alone = True
        rest_ms = asker.session.muted_until_ms - self.steady_ms
        over = Wait((), self.now_ms + rest_ms, lambda _now_ms, _expired: NoAnswer())
        slot.parked = self.purgatory.park(
            over, lambda _outcome: self.end(slot), self.steady_ms, self.now_ms
        )
        return slot

    def left(self, asker: Asker) -> None:
        """A connection has ended, for any cause."""
        if asker.session.refusal:
            self.logins[asker.listener, False] += 1
        self.crowd.left(asker)
