"""Tagged fields that Kafka does not have: reasons, and what they are made of.

What: KIP-482 lets a message carry fields that a peer may not know; a peer that does not know them
keeps or skips them. Ours have one tag, `OWN_TAG`, far above Kafka's, and mean by message:

    AlterPartition, a partition asked for     `Lags`: why a leader takes followers out
    a metadata record, the first of a batch   `SaidReasons`: why the controller decided that batch
    DescribeQuorum, the request               empty: tell the newest reasons too
    DescribeQuorum, the response              `SaidReasons`

Why not records or an API key of our own: older nodes, Kafka's tools and clients read the same
messages as before, so nothing has to be switched on. Rule kept: nothing is decided from such a
field; who loses it loses a sentence. Source: KIP-482.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from anabranch.core.errors import ProtocolError
from anabranch.core.wire.codec import decode, encode_bytes
from anabranch.core.wire.schema import Int32, Int64, Message, String, Struct

OWN_TAG = 10_000
ASKED: dict[int, bytes] = {OWN_TAG: b""}
"""The tagged fields of a request that wants reasons."""

M = TypeVar("M", bound=Message)


class Lag(Struct):
    """One follower, by its leader's steady clock: since when it is silent, and behind."""

    broker_id: Int32 = -1
    silent_ms: Int64 = 0
    behind_ms: Int64 = 0


class Lags(Message, versions="0", flexible="0+"):
    """Followers that a leader takes out of its ISR."""

    lags: list[Lag] = []


class SaidReason(Struct):
    """A reason as it is kept: when, at which offset of the metadata log, about what."""

    offset: Int64 = -1
    at_ms: Int64 = -1
    code: String = ""
    sentence: String = ""
    partition: String = ""
    """ "flights-3", or empty."""
    brokers: list[Int32] = []
    """Brokers that came, went, joined or left."""


class SaidReasons(Message, versions="0", flexible="0+"):
    """Reasons, oldest first."""

    reasons: list[SaidReason] = []


def tagged(message: Message) -> dict[int, bytes]:
    """The tagged fields that carry a message of ours."""
    return {OWN_TAG: encode_bytes(message, 0)}


def untagged(kind: type[M], fields: Mapping[int, bytes] | None) -> M:
    """The message among tagged fields; an empty one where none can be read."""
    found = (fields or {}).get(OWN_TAG)
    if not found:
        return kind()
    try:
        return decode(kind, found, 0)
    except ProtocolError:
        return kind()
