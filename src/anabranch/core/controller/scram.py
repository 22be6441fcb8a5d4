"""Plans for SCRAM credentials: which of a request's changes are made.

Rule kept: a user with a change that cannot be made keeps all its credentials; texts and codes are
those of Kafka 4.1's ScramControlManager, but for the length of names. Source: KIP-554. Not here:
logins (`core/access/scram_server.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from anabranch.core.access.principal import LARGEST_USER_BYTES
from anabranch.core.access.scram_credential import ScramCredential
from anabranch.core.access.scram_server import ITERATIONS, NAMES, make_credential
from anabranch.core.errors import ErrorCode
from anabranch.core.wire import metadata_records as records
from anabranch.core.wire.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

USERS_SINCE = 11
"""Level of metadata.version from which nodes can read credentials."""

Known = Mapping[tuple[int, str], ScramCredential]
Change = ScramCredentialDeletion | ScramCredentialUpsertion
Fault = tuple[ErrorCode, str]


def faults_of(
    known: Known,
    deletions: Sequence[ScramCredentialDeletion],
    upsertions: Sequence[ScramCredentialUpsertion],
) -> dict[str, Fault | None]:
    """What is wrong for each user of a request, None if nothing; users in the order of the
    request."""
    found: dict[str, Fault | None] = {}
    changes: list[Change] = [*deletions, *upsertions]
    times = Counter((each.mechanism, each.name) for each in changes)
    for each in changes:
        fault = _name_fault(each)
        if fault is None and times[each.mechanism, each.name] > 1:
            fault = (
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        if fault is None and isinstance(each, ScramCredentialUpsertion):
            fault = _iterations_fault(each.iterations) or _length_fault(each.name)
        elif fault is None and (each.mechanism, each.name) not in known:
            fault = (
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        found[each.name] = found.get(each.name) or fault
    return found


def _name_fault(change: Change) -> Fault | None:
    if not change.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if change.mechanism not in NAMES:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    return None


def _length_fault(name: str) -> Fault | None:
    """Kafka lets such a user be; here it could not log in."""
    if len(name.encode()) <= LARGEST_USER_BYTES:
        return None
    sentence = f"Username must not be longer than {LARGEST_USER_BYTES} bytes"
    return ErrorCode.UNACCEPTABLE_CREDENTIAL, sentence


def _iterations_fault(iterations: int) -> Fault | None:
    if iterations < ITERATIONS[0]:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if iterations > ITERATIONS[-1]:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    return None


def removed(change: ScramCredentialDeletion) -> records.RemoveUserScramCredentialRecord:
    """The record that removes a credential."""
    return records.RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)


def added(change: ScramCredentialUpsertion) -> records.UserScramCredentialRecord:
    """The record that sets a credential; the salted password itself is not kept."""
    made = make_credential(
        NAMES[change.mechanism], bytes(change.salted_password), bytes(change.salt),
        change.iterations,
    )  # fmt: skip
    return records.UserScramCredentialRecord(
        name=change.name, mechanism=change.mechanism, salt=made.salt, stored_key=made.stored_key,
        server_key=made.server_key, iterations=made.iterations,
    )  # fmt: skip
