"""A4 to A7: what must hold of delegation tokens while they are made, renewed, and end.

    A4  a request about a token that is right is taken, one that is not is refused, and what was
        acknowledged stands in the metadata log
    A5  in that log a token's owner, requester, renewers, beginning and latest end never change; its
        end passes neither the latest one nor what was asked for; it is renewed while it is good,
        for its owner or a renewer; it is removed when it is over, or for one of them
    A6  each node has the tokens of the metadata log up to its offset, also when it began with a
        snapshot
    A7  a node lets in who has a token as its owner, if its newest image has the token and it is not
        over, and until it is over; no other token lets anyone in

What: `look` logs in at a node with each token there ever was, when the node's tokens have moved or
one of them has passed its end. Rule kept: what a token must be is worked out here from requests,
records and settings. `unrest` says which token is over and still there. Not here: who asks
(`clients/token_workload.py`), the login itself (`token_logins.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.broker.authentication import Clock
from anabranch.core.errors import ErrorCode
from anabranch.core.wire import metadata_records as records
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.model import means_true
from anabranch.sim.checks.token_logins import Door, hmac_by_hand, try_token
from anabranch.sim.checks.violation import Violation
from anabranch.sim.plan_parts import TokenChange
from anabranch.sim.token_plan import END, MAKE, RENEW, SECRET, SUPER_USER, UNKNOWN

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.sim.checks.metadata import MetadataChecks
    from anabranch.sim.node import SimNode
    from anabranch.sim.plan import Plan
    from anabranch.sim.world import World

NEVER_GRANTED = "never-granted"
UNSETTLED_MS = 40_000
"""For so long a request may still be on its way, or be asked again."""
WRONG = frozenset({
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ErrorCode.INVALID_PRINCIPAL_TYPE, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNSUPPORTED_VERSION,
})  # fmt: skip
"""What says that a request is wrong, not that it came at a wrong moment."""
GONE = frozenset({
    ErrorCode.DELEGATION_TOKEN_EXPIRED, ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
})  # fmt: skip


class Token(NamedTuple):
    """One token, as a record or a node has it."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    @property
    def ends_ms(self) -> int:
        """The last moment at which it is good."""
        return min(self.max_ms, self.expiry_ms)

    def is_for(self, who: str) -> bool:
        """Whether someone may renew it and let it end."""
        return f"User:{who}" in (self.owner, *self.renewers)


class Asked(NamedTuple):
    """A request that was made once, or more often."""

    change: TokenChange
    at_ms: int
    token_id: str
    """"" for a new one."""


class TokenChecks:
    """See the module. `near_a_crash` says whether a process crashed a moment ago."""

    def __init__(
        self, metadata: MetadataChecks, marks: Marks, plan: Plan, world: World,
        near_a_crash: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._metadata = metadata
        self._marks = marks
        self._world = world
        self._near_a_crash = near_a_crash
        self._behind_ms = max(0, -min(plan.wall_skews, default=0))
        """By how much the slowest clock of the day is behind; who decides has any of them."""
        self._ahead_ms = max(0, *plan.wall_skews, 0)
        config = dict(plan.config)
        self._is_open = means_true(config["allow.everyone.if.no.acl.found"])
        self._longest_ms = int(config["delegation.token.max.lifetime.ms"])
        self._at_once_ms = int(config["delegation.token.expiry.time.ms"])
        self._session_ms = int(config["connections.max.reauth.ms"])
        self._asked: list[Asked] = []
        self._ends = [0]
        self._said: list[dict[str, Token]] = [{}]
        self._changed: list[tuple[str, int | None]] = []
        """Token and its end, None where it is removed."""
        self._known = {NEVER_GRANTED: hmac_by_hand(SECRET, NEVER_GRANTED)}
        """Each token there ever was, and its HMAC."""
        self._doors: dict[int, Door] = {}
        self._seen: dict[int, tuple[object, ...]] = {}
        """Node -> its life, and the tokens that it was asked about last."""
        self._next_end_ms: dict[int, int] = {}
        """Node -> when the next of its tokens is over."""
        self._loaded: set[int] = set()
        """Nodes that have begun with a snapshot."""

    # What users ask for.

    def asked(self, change: TokenChange, token_id: str) -> Callable[[Any], None]:
        """A request is about to be made; who judges its answer."""
        asked = Asked(change, self._world.now_ms, token_id)
        self._asked.append(asked)
        since = len(self._changed)

        def answered(response: Any) -> None:
            if response is None or self._metadata.rewound:
                return
            told = {"asked": change, "token": token_id, "code": response.error_code}
            if response.error_code == ErrorCode.NONE:
                self._taken(asked, response, since, told)
            elif self._may(asked) and self._is_wrong(asked, response.error_code):
                raise Violation("A4", "A request about a token is refused that is right.", told)

        return answered

    def _taken(self, asked: Asked, response: Any, since: int, told: dict[str, object]) -> None:
        if not self._may(asked):
            raise Violation("A4", "A request about a token is taken that is wrong.", told)
        token_id, ends_ms = asked.token_id, response.expiry_timestamp_ms
        if asked.change.kind == MAKE:
            token_id = response.token_id
            if bytes(response.hmac) != self._known.get(token_id):
                raise Violation("A4", "A token has another password than its id says.", told)
        is_removal = asked.change.kind == END and asked.change.period_ms < 0
        if (token_id, None if is_removal else ends_ms) not in self._changed[since:]:
            sentence = "A change of a token was acknowledged, and is not in the metadata log."
            raise Violation("A4", sentence, {**told, "ends_ms": ends_ms})

    def _may(self, asked: Asked) -> bool:
        """Whether it is right, if its token is there and good."""
        change = asked.change
        if change.who == UNKNOWN:
            return False
        if change.kind == MAKE:
            is_own = change.owner in ("", change.who)
            return is_own or self._is_open or change.who == SUPER_USER
        made = next(said[asked.token_id] for said in self._said if asked.token_id in said)
        return made.is_for(change.who)

    def _is_wrong(self, asked: Asked, code: int) -> bool:
        """Whether one that is right must not be refused so."""
        if code not in GONE:
            return code in WRONG
        since_ms = self._world.now_ms - UNSETTLED_MS
        token = self._said[-1].get(asked.token_id)
        return (
            token is not None
            and token.ends_ms >= self._world.now_ms + self._ahead_ms
            and not any(
                each.token_id == asked.token_id and each is not asked and each.at_ms >= since_ms
                for each in self._asked
            )
        )

    # What the metadata log says.

    def committed(self, batch: Iterable[Any], end_offset: int) -> None:
        """The metadata log has a batch more."""
        if self._metadata.rewound:
            return
        said, known = dict(self._said[-1]), len(self._changed)
        for record in batch:
            if type(record) is records.DelegationTokenRecord:
                self._set(record, said)
            elif type(record) is records.RemoveDelegationTokenRecord:
                self._remove(record.token_id, said)
        if len(self._changed) > known:
            self._ends.append(end_offset)
            self._said.append(said)

    def _set(self, record: records.DelegationTokenRecord, said: dict[str, Token]) -> None:
        token_id = record.token_id
        new = Token(
            record.owner, record.requester, tuple(record.renewers), record.issue_timestamp,
            record.max_timestamp, record.expiration_timestamp,
        )  # fmt: skip
        old = said.get(token_id)
        if old is None:
            self._check_made(token_id, new)
            self._known[token_id] = hmac_by_hand(SECRET, token_id)
        else:
            self._check_moved(token_id, old, new)
            if self._near_a_crash():
                self._marks.hit("token-renewed")
        said[token_id] = new
        self._changed.append((token_id, new.expiry_ms))

    def _check_made(self, token_id: str, new: Token) -> None:
        told = {"token": token_id, "record": new}
        if token_id in self._known:
            raise Violation("A5", "A token that was removed is there again.", told)
        if not any(
            each.change.kind == MAKE and self._may(each) and self._is_from(each, new)
            for each in self._asked
        ):
            raise Violation("A5", "A token is made that no user with the right to asked for.", told)

    def _is_from(self, asked: Asked, new: Token) -> bool:
        change = asked.change
        lifetime_ms = change.period_ms if change.period_ms > 0 else self._longest_ms
        max_ms = new.issue_ms + min(self._longest_ms, lifetime_ms)
        expiry_ms = min(max_ms, new.issue_ms + self._at_once_ms)
        renewers = tuple(f"User:{each}" for each in change.renewers)
        who, owner = f"User:{change.who}", f"User:{change.owner or change.who}"
        is_now = asked.at_ms - self._behind_ms <= new.issue_ms <= self._latest_ms
        return is_now and new == Token(owner, who, renewers, new.issue_ms, max_ms, expiry_ms)

    def _check_moved(self, token_id: str, old: Token, new: Token) -> None:
        told = {"token": token_id, "before": old, "record": new}
        if new._replace(expiry_ms=old.expiry_ms) != old:
            raise Violation("A5", "More of a token changes than its end.", told)
        if new.expiry_ms > new.max_ms:
            raise Violation("A5", "A token ends after its latest end.", told)
        if not any(self._moves(each, old, new) for each in self._of(token_id, old)):
            raise Violation("A5", "No user with the right to has asked for this end.", told)

    def _of(self, token_id: str, token: Token) -> list[Asked]:
        return [
            each for each in self._asked
            if each.token_id == token_id and token.is_for(each.change.who)
        ]  # fmt: skip

    def _moves(self, asked: Asked, old: Token, new: Token) -> bool:
        """Whether a request, at any moment since it was made at which the token was good, gives it
        this end."""
        change, first_ms = asked.change, asked.at_ms - self._behind_ms
        last_ms = min(self._latest_ms, old.ends_ms)
        for_ms = change.period_ms
        if change.kind == RENEW:
            for_ms = min(for_ms, self._at_once_ms) if for_ms > 0 else self._at_once_ms
        if for_ms < 0 or first_ms > last_ms:
            return False
        if new.expiry_ms == old.max_ms:
            return last_ms + for_ms >= old.max_ms
        return first_ms <= new.expiry_ms - for_ms <= last_ms

    def _remove(self, token_id: str, said: dict[str, Token]) -> None:
        """A removal may come twice: a new controller does not know of the first."""
        old = said.pop(token_id, None)
        if old is not None:
            if old.ends_ms < self._latest_ms:
                if self._near_a_crash():
                    self._marks.hit("token-swept")
            elif not any(
                each.change.kind == END and each.change.period_ms < 0
                for each in self._of(token_id, old)
            ):
                raise Violation(
                    "A5", "A good token is removed, and no user with the right to asked.",
                    {"token": token_id, "was": old},
                )  # fmt: skip
        elif token_id not in self._known:
            raise Violation("A5", "A token is removed that was never made.", {"token": token_id})
        self._changed.append((token_id, None))

    def unrest(self) -> str:
        """Which token is over and not removed, "" when none is."""
        if self._metadata.rewound:
            return ""
        now_ms = self._world.now_ms - self._behind_ms
        for token_id, token in sorted(self._said[-1].items()):
            if token.ends_ms < now_ms:
                return f"delegation token {token_id} is over and not removed"
        return ""

    # What nodes have, and whom they let in.

    def copy_changed(self, node: SimNode, what: str) -> None:
        """See Watcher."""
        if what == "loaded":
            self._loaded.add(node.node_id)

    def clock(self, node: SimNode) -> Clock:
        """What the clocks of a node show."""
        return Clock(self._world.now_ms, node.wall_ms, self._world.steady_ms)

    @property
    def _latest_ms(self) -> int:
        """What a clock of the day that is most ahead shows."""
        return self._world.now_ms + self._ahead_ms

    def look(self, node: SimNode) -> None:
        """After an event of a node: compare, where its tokens have moved or time has."""
        broker, node_id, now_ms = node.broker, node.node_id, node.wall_ms
        before, seen = self._seen.get(node_id), (broker, broker.image.tokens)
        if self._metadata.rewound or (
            before is not None
            and before[0] is seen[0]
            and before[1] is seen[1]
            and now_ms <= self._next_end_ms[node_id]
        ):
            return
        self._seen[node_id] = seen
        place = bisect_right(self._ends, broker.image.offset + 1) - 1
        said = self._said[place]
        self._compare(node, broker.image, said)
        good = {each: token for each, token in said.items() if token.ends_ms >= now_ms}
        later = (token.ends_ms for token in good.values())
        self._next_end_ms[node_id] = min(later, default=2**63)
        self._log_in(node, good)
        if len(good) < len(said):
            self._marks.hit("token-over-refused")
        if any(
            (each.ends_ms < now_ms) != (each.ends_ms < self._world.now_ms) for each in said.values()
        ):
            self._marks.hit("token-by-wrong-clock")
        if good and place < len(self._said) - 1:
            self._marks.hit("token-on-lagging-node")
        if good and node_id in self._loaded:
            self._marks.hit("token-from-snapshot")

    def _compare(self, node: SimNode, image: MetadataImage, said: dict[str, Token]) -> None:
        has = {
            token_id: Token(
                str(token.owner), str(token.requester), tuple(map(str, token.renewers)),
                token.issue_ms, token.max_ms, token.expiry_ms,
            )
            for token_id, token in image.tokens.items()
        }  # fmt: skip
        if said != has:
            raise Violation(
                "A6", "A node has other tokens than the metadata log.",
                {"node": node.name, "offset": image.offset, "log": said, "node_has": has},
            )  # fmt: skip

    def _log_in(self, node: SimNode, good: dict[str, Token]) -> None:
        door = self._doors.get(node.node_id)
        if door is None or door.broker is not node.broker:
            door = self._doors[node.node_id] = Door(node)
        clock = self.clock(node)
        for token_id, token_hmac in self._known.items():
            token = good.get(token_id)
            found = try_token(door, token_id, token_hmac, clock)
            told = {"node": node.name, "token": token_id, "is": token, "let_in": found}
            if found is None:
                if token is not None:
                    raise Violation("A7", "A node refuses a token that is good.", told)
                continue
            if token is None:
                raise Violation("A7", "A node lets in a token that is not good.", told)
            left_ms = max(1, token.ends_ms - clock.wall_ms)
            if self._session_ms:
                left_ms = min(left_ms, self._session_ms)
            if found != (token.owner, clock.steady_ms + left_ms, True):
                sentence = "A login with a token is not its owner's until its end."
                raise Violation("A7", sentence, {**told, "clock": clock})
        for token_id in sorted(good)[:1]:
            if try_token(door, token_id, self._known[NEVER_GRANTED], clock) is not None:
                told = {"node": node.name, "token": token_id}
                raise Violation("A7", "A node lets in a token with another's password.", told)
