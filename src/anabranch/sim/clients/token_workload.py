"""Simulated users of delegation tokens: each asks in its own name, by plan.

Rule kept: each change is one request, asked again of another broker while none answers; about a
token whose making was not acknowledged nothing more is asked, since its password is not known. Not
here: which changes there are (`token_plan.py`), logins and what must hold (`checks/tokens.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.core.access.principal import Principal
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from anabranch.core.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from anabranch.core.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from anabranch.sim.clients.admin import Admin
from anabranch.sim.clients.client import Patience
from anabranch.sim.token_plan import MAKE, PEOPLE, RENEW, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.sim.checks.tokens import TokenChecks
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History
    from anabranch.sim.plan import Plan
    from anabranch.sim.plan_parts import TokenChange

USER = "User"


class TokenWorkload:
    """See the module."""

    def __init__(self, cluster: Cluster, plan: Plan, history: History, checks: TokenChecks) -> None:
        self._world = cluster.world
        self._plan = plan
        self._checks = checks
        self._made: dict[int, tuple[str, bytes]] = {}
        """Number of a token -> its id and HMAC."""
        self._users: dict[str, Admin] = {}
        for name in (*PEOPLE, UNKNOWN):
            self._users[name] = Admin(cluster, f"user-{name}", history, (), Patience())
            self._users[name].principal = Principal(USER, name)

    def start(self) -> None:
        """Plan all requests."""
        for change in self._plan.tokens:
            self._world.at(change.at_us, self._ask, change)

    def _ask(self, change: TokenChange) -> None:
        made = self._made.get(change.number)
        if made is None and change.kind != MAKE:
            return
        token_id, token_hmac = made or ("", b"")
        self._world.note(
            "operate", change.who, f"{change.kind} token {change.number}",
            period_ms=change.period_ms,
        )  # fmt: skip
        judge = self._checks.asked(change, token_id)
        request = request_of(change, token_hmac)
        self._users[change.who].request(request, self._keeping(change, judge))

    def _keeping(self, change: TokenChange, judge: Callable[[Any], None]) -> Callable[[Any], None]:
        def answered(response: Any) -> None:
            judge(response)
            if response is not None and response.error_code == ErrorCode.NONE:
                if change.kind == MAKE:
                    self._made[change.number] = response.token_id, bytes(response.hmac)

        return answered


def request_of(change: TokenChange, token_hmac: bytes) -> Any:
    """The request that asks for a change."""
    if change.kind == MAKE:
        return CreateDelegationTokenRequest(
            owner_principal_type=USER if change.owner else None,
            owner_principal_name=change.owner or None,
            renewers=[CreatableRenewers(USER, each) for each in change.renewers],
            max_lifetime_ms=change.period_ms,
        )
    if change.kind == RENEW:
        return RenewDelegationTokenRequest(hmac=token_hmac, renew_period_ms=change.period_ms)
    return ExpireDelegationTokenRequest(hmac=token_hmac, expiry_time_period_ms=change.period_ms)
