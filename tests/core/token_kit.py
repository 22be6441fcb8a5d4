"""A controller that makes delegation tokens, asked in anyone's name."""

from __future__ import annotations

from tests.core.controller.world import World

from anabranch.core.access.principal import Principal
from anabranch.core.api.registry import handlers
from anabranch.core.outcome import Propose
from anabranch.core.request import Request
from anabranch.core.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
SECRET = "the-key-of-all-nodes"
SETTINGS = {
    "delegation.token.secret.key": SECRET, "delegation.token.max.lifetime.ms": "10000",
    "delegation.token.expiry.time.ms": "1000", "delegation.token.expiry.check.interval.ms": "500",
}  # fmt: skip
START_MS = 1_700_000_000_000


class TokenWorld(World):
    """Its time of day goes on with `pass_time`."""

    def __init__(self, **settings):
        given = {name.replace("_", "."): text for name, text in settings.items()}
        super().__init__(settings={**SETTINGS, **given})
        self.controller.wall_ms = START_MS

    def later(self, ms):
        """Let both clocks go on."""
        self.controller.wall_ms += ms
        return self.pass_time(ms)

    def ask_as(self, who, body, listener="", version=None):
        """An answer, as if a broker had passed the request on."""
        handler = handlers()[type(body).api_key]
        used = handler.versions[-1] if version is None else version
        request = Request(body.api_key, used, 1, "test", body, who, listener, "127.0.0.1", 1)
        outcome = handler.controller(self.controller, request, self.now_ms)
        if isinstance(outcome, Propose):
            self.commit_result(outcome.result)
            return outcome.result.response
        return outcome

    def make(self, who=ALICE, owner=None, renewers=(), lifetime_ms=-1):
        """A new token's answer."""
        body = CreateDelegationTokenRequest(
            owner_principal_type=owner and owner.type, owner_principal_name=owner and owner.name,
            renewers=[CreatableRenewers(*each) for each in renewers], max_lifetime_ms=lifetime_ms,
        )  # fmt: skip
        return self.ask_as(who, body)
