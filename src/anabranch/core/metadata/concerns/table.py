"""All concerns, in the order in which a snapshot has them."""

from __future__ import annotations

from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.concerns import (
    absences,
    acls,
    brokers,
    client_quotas,
    configs,
    controllers,
    delegation_tokens,
    feature_levels,
    placement_cursor,
    plans,
    producer_ids,
    scram,
    topics,
)
from anabranch.core.wire import metadata_records as records

CONCERNS = (
    feature_levels,
    controllers,
    brokers,
    topics,
    configs,
    absences,
    placement_cursor,
    plans,
    producer_ids,
    acls,
    scram,
    client_quotas,
    delegation_tokens,
)


def _nothing(_builder: ImageBuilder, _record: records.MetadataRecord) -> None:
    """A record that marks a place in the log and changes no state."""


MARKS: Rules = {
    # Of Kafka's controller, around the records it bootstraps with (KIP-868). What it began and did
    # not abort is applied record by record; an abort has no rule here, so such a log is refused.
    records.BeginTransactionRecord: _nothing,
    records.EndTransactionRecord: _nothing,
}

RULES: Rules = {
    **MARKS,
    **{kind: rule for concern in CONCERNS for kind, rule in concern.RULES.items()},
}
