"""A simulated warden: adds and removes access rules, credentials and quotas by plan.

Rule kept: each change is one request, asked again of another broker while none answers. Not here:
which changes there are (`rights_plan.py`), what must hold then (`checks/rights.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.core.access.acls import Acl
from anabranch.core.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from anabranch.core.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from anabranch.core.wire.messages.create_acls import AclCreation, CreateAclsRequest
from anabranch.core.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from anabranch.sim.clients.admin import Admin
from anabranch.sim.clients.client import Patience

if TYPE_CHECKING:
    from anabranch.sim.checks.rights import RightsChecks
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History
    from anabranch.sim.plan import Plan
    from anabranch.sim.plan_parts import RightsChange

WARDEN = "warden"
ITERATIONS = 4_096


class RightsWorkload:
    """See the module."""

    def __init__(
        self, cluster: Cluster, plan: Plan, history: History, checks: RightsChecks
    ) -> None:
        self._world = cluster.world
        self._plan = plan
        self._checks = checks
        self._warden = Admin(cluster, WARDEN, history, (), Patience())

    def start(self) -> None:
        """Plan all changes."""
        for change in self._plan.rights:
            self._world.at(change.at_us, self._make, change)

    def _make(self, change: RightsChange) -> None:
        self._world.note("operate", WARDEN, f"{change.what}", value=change.value)
        self._warden.request(request_of(change), self._checks.asked(change))


def request_of(change: RightsChange) -> Any:
    """The request that makes a change."""
    what, value = change.what, change.value
    if isinstance(what, Acl):
        return _removal(what) if value is None else _creation(what)
    assert isinstance(what, tuple)
    whose, which = what
    make: Any = _of_user if isinstance(whose, int) else _of_quota
    return make(whose, which, value)


def _creation(acl: Acl) -> CreateAclsRequest:
    entry = AclCreation(
        resource_type=acl.resource_type, resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type, principal=acl.principal, host=acl.host,
        operation=acl.operation, permission_type=acl.permission,
    )  # fmt: skip
    return CreateAclsRequest(creations=[entry])


def _removal(acl: Acl) -> DeleteAclsRequest:
    wanted = DeleteAclsFilter(
        acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host,
        acl.operation, acl.permission,
    )  # fmt: skip
    return DeleteAclsRequest(filters=[wanted])


def _of_user(mechanism: int, name: str, salt: bytes | None) -> AlterUserScramCredentialsRequest:
    if salt is None:
        deletion = ScramCredentialDeletion(name=name, mechanism=mechanism)
        return AlterUserScramCredentialsRequest(deletions=[deletion])
    upsertion = ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=ITERATIONS, salt=salt, salted_password=salt * 4
    )
    return AlterUserScramCredentialsRequest(upsertions=[upsertion])


def _of_quota(
    entity: tuple[tuple[str, str | None], ...], key: str, value: float | None
) -> AlterClientQuotasRequest:
    entry = EntryData(
        entity=[EntityData(kind, name) for kind, name in entity],
        ops=[OpData(key, value or 0.0, value is None)],
    )
    return AlterClientQuotasRequest(entries=[entry])
