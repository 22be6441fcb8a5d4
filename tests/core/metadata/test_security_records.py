"""Access rules, SCRAM credentials, quotas and delegation tokens: replay against plain dictionaries, and snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.access.rules import ACLS

from anabranch.core.errors import Bug
from anabranch.core.metadata.batches import decode_batches, encode_batch
from anabranch.core.metadata.concerns.acls import entry
from anabranch.core.metadata.concerns.delegation_tokens import entry as entry_of_token
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records
from anabranch.core.wire import metadata_records as records

USERS = st.sampled_from(["alice", "bob", ""])
ENTITY_NAMES = st.sampled_from([None, "", "alice"])
ENTITIES = st.lists(
    st.builds(records.EntityData, st.sampled_from(["user", "client-id", "ip"]), ENTITY_NAMES),
    min_size=1, max_size=2, unique_by=lambda each: each.entity_type,
)  # fmt: skip
PRINCIPALS = st.sampled_from(["User:alice", "User:a:b", "Team:x"])
TIMES, TOKEN_IDS = st.integers(0, 10**13), st.sampled_from(["t", "u"])
KEYS = st.binary(min_size=1, max_size=2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 7).map(lambda number: bytes([number]) * 16), ACLS),
        st.builds(
            records.UserScramCredentialRecord, name=USERS, mechanism=st.integers(1, 2), salt=KEYS,
            stored_key=KEYS, server_key=KEYS, iterations=st.integers(4096, 16384),
        ),
        st.builds(
            records.RemoveUserScramCredentialRecord, name=USERS, mechanism=st.integers(1, 2)
        ),
        st.builds(
            records.DelegationTokenRecord, owner=PRINCIPALS, requester=PRINCIPALS,
            renewers=st.lists(PRINCIPALS, max_size=2), issue_timestamp=TIMES, max_timestamp=TIMES,
            expiration_timestamp=TIMES, token_id=TOKEN_IDS,
        ),
        st.builds(records.RemoveDelegationTokenRecord, token_id=TOKEN_IDS),
        st.builds(
            records.ClientQuotaRecord, entity=ENTITIES,
            key=st.sampled_from(["producer_byte_rate", "request_percentage"]),
            value=st.floats(0, 1e9), remove=st.booleans(),
        ),
    ),
    max_size=40,
)  # fmt: skip


class Plain:
    """What the records mean, without an image."""

    def __init__(self) -> None:
        self.acls, self.scram, self.quotas, self.tokens = {}, {}, {}, {}

    def take(self, step):
        """Apply a step; the record, None for one that nobody would write now."""
        if isinstance(step, tuple):
            acl_id, acl = step
            if self.acls.pop(acl_id, None) is not None:
                return records.RemoveAccessControlEntryRecord(id=acl_id)
            self.acls[acl_id] = acl
            return entry(acl_id, acl)
        if isinstance(step, records.ClientQuotaRecord):
            key = frozenset((each.entity_type, each.entity_name) for each in step.entity), step.key
            if step.remove:
                self.quotas.pop(key, None)
            else:
                self.quotas[key] = step.value
            return step
        if isinstance(step, records.DelegationTokenRecord):
            self.tokens[step.token_id] = step
            return step
        if isinstance(step, records.RemoveDelegationTokenRecord):
            self.tokens.pop(step.token_id, None)
            return step
        key = step.mechanism, step.name
        if isinstance(step, records.UserScramCredentialRecord):
            self.scram[key] = step.salt, step.stored_key, step.server_key, step.iterations
            return step
        return step if self.scram.pop(key, None) else None


@given(STEPS, st.integers(1, 5))
def test_replay_and_snapshots_keep_what_the_records_mean(steps, size) -> None:
    plain, image = Plain(), MetadataImage.empty()
    made = [record for step in steps if (record := plain.take(step)) is not None]
    for start in range(0, len(made), size):
        piece = made[start : start + size]
        data = encode_batch(piece, base_offset=image.next_offset, epoch=1, now_ms=0)
        (batch,) = decode_batches(data)
        image, _ = replay_batch(image, batch.records, batch.last_offset, 1)
    assert dict(image.acls.by_id) == plain.acls
    assert {
        key: (each.salt, each.stored_key, each.server_key, each.iterations)
        for key, each in image.scram.items()
    } == plain.scram
    assert {
        (frozenset(entity), key): value
        for entity, values in image.quotas.items()
        for key, value in values.items()
    } == plain.quotas
    assert {
        token_id: entry_of_token(each) for token_id, each in image.tokens.items()
    } == plain.tokens
    again = from_snapshot(snapshot_records(image), image.next_offset, image.epoch)
    assert again == image
    assert list(snapshot_records(again)) == list(snapshot_records(image))


@pytest.mark.parametrize(
    "record",
    [
        records.RemoveAccessControlEntryRecord(id=b"a" * 16),
        records.RemoveUserScramCredentialRecord(name="alice", mechanism=1),
    ],
)
def test_what_does_not_exist_cannot_be_removed(record) -> None:
    with pytest.raises(Bug, match="does not exist"):
        replay_batch(MetadataImage.empty(), [record], 0, 1)


def test_an_id_is_not_given_twice() -> None:
    record = records.AccessControlEntryRecord(id=b"a" * 16, principal="User:a", host="*")
    with pytest.raises(Bug, match="exists"):
        replay_batch(MetadataImage.empty(), [record, record], 1, 1)


def test_no_text_shows_the_keys_of_a_credential() -> None:
    record = records.UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"SALT", stored_key=b"STORED", server_key=b"SERVER"
    )
    image, _ = replay_batch(MetadataImage.empty(), [record], 0, 1)
    text = repr(image)
    assert "alice" in text
    assert not any(secret in text for secret in ("SALT", "STORED", "SERVER"))
