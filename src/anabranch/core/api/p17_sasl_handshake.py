"""SaslHandshake: a client names the mechanism with which it shows who it is.

KIP: KIP-43, KIP-152, KIP-368.
Versions: 0-1.
Behaviour: answered with what the listener offers. A mechanism that it does not offer:
    UNSUPPORTED_SASL_MECHANISM, and the connection is closed. ILLEGAL_SASL_STATE on a listener
    without SASL, and for a session that holds for good. After version 0 the messages of the
    mechanism come without headers.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.api.handler import Handler
from anabranch.core.broker.authentication import Authenticating, handshake
from anabranch.core.broker.gate import Charge
from anabranch.core.outcome import Outcome
from anabranch.core.request import Request


def run(node: Authenticating, request: Request, _now_ms: int) -> Outcome:
    """The same for both roles."""
    return handshake(node, request)


HANDLER = Handler(
    api_key=17,
    name="SaslHandshake",
    versions=range(2),
    broker=run,
    controller=run,
    opens_session=True,
    charge=Charge.EXEMPT,
    kips=("KIP-43", "KIP-152", "KIP-368"),
)
