"""What a mirror lacks where a cluster refuses it something: the right, as Kafka's ACLs name it."""

from __future__ import annotations

from anabranch.core.errors import ErrorCode

REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}  # fmt: skip


def missing_right(code: ErrorCode | None, right: str) -> str:
    """The remedy, behind a fault's sentence: empty unless a right is missing."""
    return f" Give the mirror {right}." if code in REFUSALS else ""
