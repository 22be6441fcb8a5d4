"""A1 to A3: what must hold of access rules, credentials and quotas while they change.

    A1  a change that is right is taken, and one that was acknowledged stands in the metadata log
    A2  each node has the rules, credentials and quotas of the metadata log up to its offset, also
        when it began with a snapshot
    A3  each node decides by the rules and quotas of its image, whatever it decided before: what
        its newest image denies it never allows

What: `look` asks a node's authorizer and quotas about users, hosts and topics when its rules have
moved, and compares with decisions that are made here from the plain list of rules. Rule kept:
nothing of production's indexes and caches is used here. Not here: who asks for changes
(`clients/rights_workload.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.access.acls import Acl
from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.access.principal import Principal
from anabranch.core.errors import ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire import metadata_records as records
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.model import means_true
from anabranch.sim.checks.violation import Violation
from anabranch.sim.rights_plan import HOSTS, QUOTA, TOPICS, USERS

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.sim.checks.metadata import MetadataChecks
    from anabranch.sim.node import SimNode
    from anabranch.sim.plan import Plan
    from anabranch.sim.plan_parts import RightsChange

REFUSALS = frozenset({
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.DUPLICATE_RESOURCE,
    ErrorCode.INVALID_REQUEST, ErrorCode.SECURITY_DISABLED, ErrorCode.UNACCEPTABLE_CREDENTIAL,
    ErrorCode.UNKNOWN_SERVER_ERROR,
})  # fmt: skip
"""What says that a change is wrong, not that it came at a wrong moment."""
OPERATIONS = (Operation.READ, Operation.WRITE, Operation.DESCRIBE)
CLIENTS = ("app", "other")
_ALL, _READ, _WRITE, _DELETE, _ALTER, _DESCRIBE = 2, 3, 4, 6, 7, 8
_DENY, _LITERAL = 2, 3
_IMPLY_DESCRIBE = (_READ, _WRITE, _DELETE, _ALTER)
_PARTS_OF_ANSWERS = ("results", "filter_results", "entries")


class Rights(NamedTuple):
    """What the metadata log says up to an offset."""

    acls: dict[bytes, Acl]
    credentials: dict[tuple[int, str], bytes]
    """Mechanism and user -> salt."""
    quotas: dict[Hashable, float]
    """Entity and key -> value."""


class RightsChecks:
    """See the module. `near_a_crash` says whether a process crashed a moment ago."""

    def __init__(
        self, metadata: MetadataChecks, marks: Marks, plan: Plan, near_a_crash: Callable[[], bool]
    ) -> None:
        self._metadata = metadata
        self._marks = marks
        self._near_a_crash = near_a_crash
        self._is_open = means_true(dict(plan.config)["allow.everyone.if.no.acl.found"])
        self._ends = [0]
        self._said = [Rights({}, {}, {})]
        self._changed: list[tuple[Hashable, object]] = []
        self._seen: dict[int, tuple[object, ...]] = {}
        """Node -> its life, and what it was asked about last."""
        self._loaded: set[int] = set()
        """Nodes that have begun with a snapshot."""

    # What the warden asks for.

    def asked(self, change: RightsChange) -> Callable[[Any], None]:
        """A change is about to be asked for; who judges its answer."""
        since, before = len(self._changed), self._value(change.what)

        def answered(response: Any) -> None:
            if response is None or self._metadata.rewound:
                return
            part = next(getattr(response, name) for name in _PARTS_OF_ANSWERS
                        if hasattr(response, name))[0]  # fmt: skip
            told = {"what": change.what, "value": change.value, "answer": part.error_message}
            if part.error_code in REFUSALS:
                raise Violation("A1", "A change of rights is refused that is right.", told)
            later = [value for what, value in self._changed[since:] if what == change.what]
            if part.error_code == ErrorCode.NONE and change.value not in (before, *later):
                sentence = "A change was acknowledged, and is not in the metadata log."
                raise Violation("A1", sentence, {**told, "held": [before, *later]})

        return answered

    def _value(self, what: Hashable) -> object:
        said = self._said[-1]
        if isinstance(what, Acl):
            return True if what in said.acls.values() else None
        held: tuple[dict[Any, object], ...] = (dict(said.credentials), dict(said.quotas))
        return held[0].get(what, held[1].get(what))

    def committed(self, batch: Iterable[Any], end_offset: int) -> None:
        """The metadata log has a batch more."""
        if self._metadata.rewound:
            return
        before = self._said[-1]
        said = Rights(dict(before.acls), dict(before.credentials), dict(before.quotas))
        known = len(self._changed)
        for record in batch:
            self._apply(record, said)
        if len(self._changed) > known:
            self._ends.append(end_offset)
            self._said.append(said)

    def _apply(self, record: Any, said: Rights) -> None:
        kind = type(record)
        if kind is records.AccessControlEntryRecord:
            acl = Acl(record.resource_type, record.pattern_type, record.resource_name,
                      record.principal, record.host, record.operation,
                      record.permission_type)  # fmt: skip
            if acl in said.acls.values():
                raise Violation("A1", "A rule that exists is made again.", {"rule": acl})
            said.acls[bytes(record.id)] = acl
            self._changed.append((acl, True))
        elif kind is records.RemoveAccessControlEntryRecord:
            self._changed.append((said.acls.pop(bytes(record.id)), None))
            if self._near_a_crash():
                self._marks.hit("right-revoked")
        elif kind is records.UserScramCredentialRecord:
            key, salt = (record.mechanism, record.name), bytes(record.salt)
            said.credentials[key] = salt
            self._changed.append((key, salt))
        elif kind is records.RemoveUserScramCredentialRecord:
            key = record.mechanism, record.name
            del said.credentials[key]
            self._changed.append((key, None))
        elif kind is records.ClientQuotaRecord:
            self._apply_quota(record, said)

    def _apply_quota(self, record: records.ClientQuotaRecord, said: Rights) -> None:
        pairs = ((each.entity_type, each.entity_name) for each in record.entity)
        key = tuple(sorted(pairs, key=lambda pair: pair[0])), record.key
        if record.remove:
            said.quotas.pop(key, None)
        else:
            said.quotas[key] = record.value
        self._changed.append((key, None if record.remove else record.value))

    # What nodes have, and decide.

    def copy_changed(self, node: SimNode, what: str) -> None:
        """See Watcher."""
        if what == "loaded":
            self._loaded.add(node.node_id)

    def look(self, node: SimNode) -> None:
        """After an event of a node: compare, where its image has moved."""
        broker = node.broker
        image = broker.image
        seen = (id(broker), image.acls, image.scram, image.quotas, image.offset < 0)
        if self._metadata.rewound or _are_same(self._seen.get(node.node_id, ()), seen):
            return
        self._seen[node.node_id] = seen
        place = bisect_right(self._ends, image.offset + 1) - 1
        said = self._said[place]
        self._compare(node, image, said)
        self._ask(node, image.offset >= 0, said)
        if place < len(self._said) - 1:
            self._marks.hit("lagging-node-asked")
        if node.node_id in self._loaded and said.acls:
            self._marks.hit("rights-from-snapshot")

    def _compare(self, node: SimNode, image: MetadataImage, said: Rights) -> None:
        quotas: dict[Hashable, float] = {
            (entity, key): value
            for entity, values in image.quotas.items()
            for key, value in values.items()
        }
        salts = {place: each.salt for place, each in image.scram.items()}
        has = Rights(dict(image.acls.by_id.items()), salts, quotas)
        for name, ours, theirs in zip(Rights._fields, said, has, strict=True):
            if ours != theirs:
                raise Violation(
                    "A2", f"A node has other {name} than the metadata log.",
                    {"node": node.name, "offset": image.offset, "log": ours, "node_has": theirs},
                )  # fmt: skip

    def _ask(self, node: SimNode, is_loaded: bool, said: Rights) -> None:
        rules = list(said.acls.values())
        for user, host, operation, topic in _questions():
            request = Request(0, 0, 0, "", None, Principal("User", user), "", host, 0)
            shown = node.broker.authorizer.authorize(request, operation, ResourceType.TOPIC, topic)
            wanted = is_loaded and allowed(
                rules, f"User:{user}", host, operation, topic, is_open=self._is_open
            )
            if shown is not wanted:
                raise Violation(
                    "A3", "A node decides otherwise than the rules of its image.",
                    {"node": node.name, "user": user, "host": host, "operation": operation.name,
                     "topic": topic, "allows": shown, "rules": rules},
                )  # fmt: skip
        quotas = node.broker.client_quotas
        for user in USERS:
            for client in CLIENTS:
                bytes_most = quotas.most_bytes(Principal("User", user), client)
                wanted_most = limit(said.quotas, user, client) * quotas.window.full_ms / 1_000
                if bytes_most != wanted_most:
                    raise Violation(
                        "A3", "A node limits a client otherwise than the quotas of its image.",
                        {"node": node.name, "user": user, "client": client,
                         "bytes": bytes_most, "wanted": wanted_most},
                    )  # fmt: skip


def _questions() -> Iterator[tuple[str, str, Operation, str]]:
    for user in USERS:
        for host in HOSTS:
            for operation in OPERATIONS:
                for topic in TOPICS:
                    yield user, host, operation, topic


def _are_same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    """Whether it is the same state in the same life, and not only an equal one."""
    return (
        len(before) == len(now)
        and before[0] == now[0]
        and all(a is b for a, b in zip(before[1:], now[1:], strict=True))
    )


def allowed(
    rules: Iterable[Acl], who: str, host: str, operation: int, topic: str, *, is_open: bool
) -> bool:
    """What the plain list of rules says of a topic."""
    fitting = [each for each in rules if _fits(each, topic)]
    if not fitting:
        return is_open
    mine = [
        each for each in fitting
        if each.principal in (who, "User:*") and each.host in (host, "*")
    ]  # fmt: skip
    if any(each.permission == _DENY and each.operation in (_ALL, operation) for each in mine):
        return False
    allowing = (_ALL, operation, *(_IMPLY_DESCRIBE if operation == _DESCRIBE else ()))
    return any(each.permission != _DENY and each.operation in allowing for each in mine)


def _fits(rule: Acl, topic: str) -> bool:
    if rule.pattern_type == _LITERAL:
        return rule.resource_name in (topic, "*")
    return topic.startswith(rule.resource_name)


def limit(quotas: dict[Hashable, float], user: str, client: str) -> float:
    """Bytes a second that a client may fetch, by the most specific quota."""
    for of_user, of_client in (
        (user, client), (user, None), (user, "-"), (None, client), (None, None), (None, "-"),
        ("-", client), ("-", None),
    ):  # fmt: skip
        pairs = (("client-id", of_client), ("user", of_user))
        found = quotas.get((tuple(pair for pair in pairs if pair[1] != "-"), QUOTA))
        if found is not None:
            return found
    return float("inf")
