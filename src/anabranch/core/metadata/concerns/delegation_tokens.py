"""Delegation tokens (KIP-48, KIP-900).

Rule kept: a record has the whole of a token, whose renewal writes it again. A token may be removed
twice: Kafka's controller looks for what is over among committed tokens, and may do so before the
first removal is there. Not here: passwords of tokens, which no record has.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.access.delegation_tokens import DelegationToken, principal_of
from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.wire import metadata_records as records


def _set(builder: ImageBuilder, record: records.DelegationTokenRecord) -> None:
    builder.tokens.add(record.token_id)
    builder.changing("tokens")[record.token_id] = DelegationToken(
        token_id=record.token_id,
        owner=principal_of(record.owner),
        requester=principal_of(record.requester),
        renewers=tuple(map(principal_of, record.renewers)),
        issue_ms=record.issue_timestamp,
        max_ms=record.max_timestamp,
        expiry_ms=record.expiration_timestamp,
    )


def _remove(builder: ImageBuilder, record: records.RemoveDelegationTokenRecord) -> None:
    if record.token_id in (tokens := builder.changing("tokens")):
        del tokens[record.token_id]
        builder.tokens.add(record.token_id)


RULES: Rules = {
    records.DelegationTokenRecord: _set,
    records.RemoveDelegationTokenRecord: _remove,
}


def snapshot(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    """Every token, by its id."""
    for _, token in sorted(image.tokens.items()):
        yield entry(token)


def entry(token: DelegationToken) -> records.DelegationTokenRecord:
    """The record that sets a token."""
    return records.DelegationTokenRecord(
        owner=str(token.owner), requester=str(token.requester),
        renewers=[str(each) for each in token.renewers], issue_timestamp=token.issue_ms,
        max_timestamp=token.max_ms, expiration_timestamp=token.expiry_ms, token_id=token.token_id,
    )  # fmt: skip
