"""Users with SCRAM credentials: listed, set and removed with Kafka's requests (KIP-554).

Rule kept: a password does not leave this process, only what it is hashed to. Not here: logins
(sasl.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from anabranch.client.cluster import Cluster, check
from anabranch.core.access.scram_server import CODES, NAMES, SALT_BYTES, salted
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from anabranch.core.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

Credentials = dict[str, dict[str, int]]
"""User -> mechanism -> iterations."""


async def list_users(cluster: Cluster, names: Sequence[str] = ()) -> Credentials:
    """The mechanisms of users, of all without names. Raises ApiError, for one that is unknown
    too."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=each) for each in names])
    answer: DescribeUserScramCredentialsResponse = await cluster.send(request)
    check(answer.error_code, answer.error_message)
    for each in answer.results:
        check(each.error_code, each.error_message)
    return {
        each.user: {
            NAMES.get(info.mechanism, str(info.mechanism)): info.iterations
            for info in each.credential_infos
        }
        for each in answer.results
    }


async def set_password(
    cluster: Cluster, user: str, mechanism: str, password: str, iterations: int
) -> None:
    """Set a user's password for a mechanism. Raises ApiError."""
    salt = secrets.token_bytes(SALT_BYTES)
    change = ScramCredentialUpsertion(
        name=user, mechanism=CODES[mechanism], iterations=iterations, salt=salt,
        salted_password=salted(mechanism, password, salt, iterations),
    )  # fmt: skip
    await _alter(cluster, AlterUserScramCredentialsRequest(upsertions=[change]))


async def remove_user(cluster: Cluster, user: str, mechanisms: Sequence[str]) -> None:
    """Remove a user's credentials for mechanisms. Raises ApiError."""
    changes = [ScramCredentialDeletion(name=user, mechanism=CODES[each]) for each in mechanisms]
    await _alter(cluster, AlterUserScramCredentialsRequest(deletions=changes))


async def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    answer: AlterUserScramCredentialsResponse = await cluster.send(request)
    for each in answer.results:
        if each.error_code != ErrorCode.NONE:
            check(each.error_code, each.error_message)
