"""What a request handler is: the contract between the meaning of a request and whoever runs it.

A handler is a plain function `(node, request, now_ms) -> Outcome`. It decides; whoever runs it acts
on what it returned (`core.outcome`): sends a message, parks a `Wait`, brings in what is `Cold`,
makes a `Propose` durable, passes a `Forward` on to the active controller, or closes the connection.
A handler reads no clock and touches no socket, so the simulator runs the very same functions.

One file an API key (`p00_produce.py`), each exposing `HANDLER`. ApiVersions is made from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from anabranch.core.broker.gate import Charge, Need
from anabranch.core.outcome import Forward, Outcome
from anabranch.core.request import Request

Run: TypeAlias = Callable[[Any, Request, int], Outcome]


@dataclass(frozen=True, slots=True)
class Handler:
    """An API key: who serves it and in which versions.

    `broker` runs on client listeners with a `Broker` as its first argument, `controller` on the
    controller listener with a `Controller`. None means: not served there, and not advertised there.
    `advertised` differs from `versions` only where Kafka's does (Produce, KAFKA-18659).
    """

    api_key: int
    name: str
    versions: range
    broker: Run | None = None
    controller: Run | None = None
    advertised: range | None = None
    needs: tuple[Need, ...] = ()
    """What the handler asks the authorizer, for a name of its request or for the cluster."""
    charge: Charge = Charge.REQUEST
    """The quota that it draws on."""
    emptied: Callable[[Any, Request, Any], Any] | None = None
    """Of a broker's answer that is over its quota: the same without what it brings (KIP-219)."""
    of_broker: Callable[[Any], bool] | None = None
    """Whether a request with this body is one that only brokers make: a connection that may make
    it is served before those of clients. None: clients make it, too, and in the same way."""
    opens_session: bool = False
    """Whether a connection may ask before it has said who it is."""
    forwards_some: bool = False
    """Whether a broker that answers some of these itself leaves others to the controller."""
    kips: tuple[str, ...] = ()
    skipped: tuple[str, ...] = field(default=())
    """What Kafka does here and Anabranch does not, a sentence each; the ledger test reads it."""


def always(_body: Any) -> bool:
    """Only brokers make such requests."""
    return True


def forward(_node: Any, _request: Request, _now_ms: int) -> Forward:
    """The broker half of every API that only the controller decides."""
    return Forward()
