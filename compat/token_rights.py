"""Requests about delegation tokens with each right missing: part of the table of rights.

Only who has logged in may ask. So the client is also a user of a listener with logins, as is
another user, the owner, who has a token, too. Requests change nothing that a later one depends on:
tokens that they made end before the next round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anabranch.core.access.acls import ALLOW, LITERAL, Acl
from anabranch.core.access.authorize import ResourceType
from anabranch.core.wire.messages import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from anabranch.core.wire.schema import Message
from compat.rights_wire import ADMIN, ALL, CLIENT, Asked, Wire
from compat.row import Failed

USER, OWNER = "client", "owner"
SECRET = "secret"
HOUR_MS = 3_600_000
NOW = -1
KINDS = (ResourceType.DELEGATION_TOKEN, ResourceType.USER)
LISTENER = "LOGINS"
LISTENERS = ("PLAINTEXT", "CONTROLLER", LISTENER, "INTERNAL")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def settings(*ports: int) -> dict[str, str]:
    """Settings of a node that has a listener with logins beside the plaintext one, and one for
    nodes, as Anabranch trusts whoever comes there. `ports` are those of LISTENERS."""
    at = zip(LISTENERS, ports, strict=True)
    listeners = {name: f"{name}://127.0.0.1:{port}" for name, port in at}
    prefix = f"listener.name.{LISTENER.lower()}"
    users = " ".join(f'user_{name}="{SECRET}"' for name in (USER, OWNER))
    return {
        "listeners": ",".join(listeners.values()),
        "advertised.listeners": ",".join(
            at for name, at in listeners.items() if name != "CONTROLLER"
        ),
        "listener.security.protocol.map": ",".join(
            f"{name}:{'SASL_PLAINTEXT' if name == LISTENER else 'PLAINTEXT'}" for name in LISTENERS
        ),
        "inter.broker.listener.name": "INTERNAL",
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}.plain.sasl.jaas.config": f"{MODULE} {users};",
        "delegation.token.secret.key": SECRET,
    }


class Tokens:
    """A token of the client and one of the owner, and what is asked about them."""

    def __init__(self, peer: Asked, address: str) -> None:
        self.peer = peer
        self.client = Wire(address, CLIENT, login=(USER, SECRET))
        self.owner = Wire(address, ADMIN, login=(OWNER, SECRET))
        self.own, self.others = self.made(self.client), self.made(self.owner)

    @staticmethod
    def rules_of_owner() -> Iterator[Acl]:
        """What the owner may: see all tokens."""
        for kind in KINDS:
            yield Acl(kind, LITERAL, "*", f"User:{OWNER}", ADMIN, ALL, ALLOW)

    def made(self, wire: Wire) -> bytes:
        """The HMAC of a new token that the owner may renew."""
        answer = self.peer.wait(lambda: _or_none(wire.ask(creation())), "a token")
        return bytes(answer.hmac)

    def settle(self) -> None:
        """End what was made by requests, and wait until the broker knows of the two alone."""
        kept = {self.own, self.others}

        def is_settled() -> bool:
            hmacs = {bytes(each.hmac) for each in self.listed()}
            for each in hmacs - kept:
                self.owner.ask(expire_delegation_token.ExpireDelegationTokenRequest(each, NOW))
            return hmacs == kept

        self.peer.wait(is_settled, "two tokens")

    def listed(self) -> list[Any]:
        """The tokens that the broker knows."""
        answer = self.owner.ask(describe_delegation_token.DescribeDelegationTokenRequest(None))
        if answer is None or answer.error_code:
            raise Failed(f"no tokens are told: {answer}")
        return list(answer.tokens)

    def requests(self) -> Iterator[tuple[str, Message]]:
        """What is asked; what makes tokens comes last, as the broker hears of them later."""
        named = describe_delegation_token.DescribeDelegationTokenOwner
        for label, owners in (
            ("all", None), ("none", []), ("own", [named("User", USER)]),
            ("of another", [named("User", OWNER)]),
        ):  # fmt: skip
            yield label, describe_delegation_token.DescribeDelegationTokenRequest(owners)
        for label, hmac in (("own", self.own), ("of another", self.others), ("unknown", b"x")):
            yield label, renew_delegation_token.RenewDelegationTokenRequest(hmac, HOUR_MS)
            yield label, expire_delegation_token.ExpireDelegationTokenRequest(hmac, HOUR_MS)
        yield "own", creation()
        yield "for another", creation("somebody")


def creation(owner: str = "") -> create_delegation_token.CreateDelegationTokenRequest:
    """A token that the owner may renew."""
    return create_delegation_token.CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else "", owner_principal_name=owner,
        renewers=[create_delegation_token.CreatableRenewers("User", OWNER)], max_lifetime_ms=-1,
    )  # fmt: skip


def _or_none(answer: Any) -> Any:
    return None if answer is None or answer.error_code else answer
