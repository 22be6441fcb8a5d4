"""SaslAuthenticate: one message of a mechanism, and its answer.

KIP: KIP-43, KIP-48, KIP-84, KIP-152, KIP-368.
Versions: 0-2.
Behaviour: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. The last message gives the session
    its principal, for good, for connections.max.reauth.ms, or until its token ends; with a
    delegation token that is the owner, by SCRAM. A refusal waits
    for connection.failed.authentication.delay.ms, is the same for an unknown user and a wrong
    password, and closes the connection. A session that is renewed keeps principal and mechanism.
Skipped: GSSAPI.
"""

from __future__ import annotations

from typing import Any

from anabranch.core.api.handler import Handler
from anabranch.core.broker.authentication import Clock, authenticate
from anabranch.core.broker.gate import Charge
from anabranch.core.outcome import Outcome
from anabranch.core.request import Request


def on_broker(broker: Any, request: Request, now_ms: int) -> Outcome:
    """Handlers of brokers are told the time of day."""
    return authenticate(broker, request, Clock(now_ms, now_ms, broker.steady_ms))


def on_controller(controller: Any, request: Request, now_ms: int) -> Outcome:
    """Handlers of controllers are told the steady clock."""
    return authenticate(controller, request, Clock(now_ms, controller.wall_ms, now_ms))


HANDLER = Handler(
    api_key=36,
    name="SaslAuthenticate",
    versions=range(3),
    broker=on_broker,
    controller=on_controller,
    opens_session=True,
    charge=Charge.EXEMPT,
    kips=("KIP-43", "KIP-48", "KIP-84", "KIP-152", "KIP-368"),
    skipped=("GSSAPI (Kerberos) is not offered.",),
)
