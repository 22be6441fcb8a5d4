"""What the checks of delegation tokens object to: each claim is broken by hand once."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace

from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.messages.create_delegation_token import CreateDelegationTokenResponse
from anabranch.core.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
from anabranch.core.wire.messages.renew_delegation_token import RenewDelegationTokenResponse
from anabranch.core.wire.metadata_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.token_logins import Door, LetIn, hmac_by_hand, try_token
from anabranch.sim.checks.tokens import TokenChecks
from anabranch.sim.checks.violation import Violation
from anabranch.sim.life import draw_plan
from anabranch.sim.plan_parts import TokenChange
from anabranch.sim.rights_plan import FIRST_SEED
from anabranch.sim.token_plan import END, MAKE, RENEW, SECRET, SUPER_USER, UNKNOWN
from anabranch.sim.world import World

PLAN = draw_plan(FIRST_SEED + 10)
SETTINGS = {
    **dict(PLAN.config), "allow.everyone.if.no.acl.found": "false",
    "delegation.token.max.lifetime.ms": "10000", "delegation.token.expiry.time.ms": "1000",
    "connections.max.reauth.ms": "0",
}  # fmt: skip
CREATE = TokenChange(0, MAKE, 0, "alice", 5_000, "", ("bob",))
TIMES = ("issue_timestamp", "max_timestamp", "expiration_timestamp")
REFUSED = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class Scene:
    """The checks, a log of tokens, and a node that follows it by hand. A token of alice's, which
    bob may renew, is good for a second, and for five at most."""

    def __init__(self, skew_ms: int = 0) -> None:
        self.marks = Marks()
        metadata: Any = SimpleNamespace(rewound=False)
        self.world = World(0)
        plan: Any = SimpleNamespace(config=tuple(SETTINGS.items()), wall_skews=(skew_ms, 0))
        self.checks = TokenChecks(metadata, self.marks, plan, self.world, lambda: True)
        self.image = MetadataImage.empty()
        self.node: Any = SimpleNamespace(node_id=1, name="node-1", config=BrokerConfig.of(SETTINGS))
        self.node.broker = SimpleNamespace(image=self.image)
        self.skew_ms = skew_ms
        self.tell_node()
        self.checks.asked(CREATE, "")
        now_ms = self.world.now_ms
        self.made = DelegationTokenRecord(
            owner="User:alice", requester="User:alice", renewers=["User:bob"],
            issue_timestamp=now_ms, max_timestamp=now_ms + 5_000,
            expiration_timestamp=now_ms + 1_000, token_id="one",
        )  # fmt: skip

    def commit(self, *batch: Any) -> None:
        first = self.image.next_offset
        self.image = replay_batch(self.image, batch, first + len(batch) - 1, 1)[0]
        self.checks.committed(batch, first + len(batch))

    def renewed(self, **changes: Any) -> DelegationTokenRecord:
        return replace(self.made, **changes)

    def ask(self, kind: str, who: str, period_ms: int) -> Any:
        return self.checks.asked(TokenChange(0, kind, 0, who, period_ms), "one")

    def follow(self, image: MetadataImage | None = None) -> None:
        self.node.broker.image = image or self.image
        self.checks.look(self.node)

    def later(self, ms: int) -> None:
        self.world.now_us += ms * 1_000
        self.tell_node()

    def tell_node(self) -> None:
        self.node.wall_ms = self.world.now_ms + self.skew_ms

    def violated(self, *batch: Any) -> str:
        act = partial(self.commit, *batch) if batch else partial(self.checks.look, self.node)
        with pytest.raises(Violation) as caught:
            act()
        return caught.value.id


def test_a_token_is_made_renewed_and_swept_while_a_node_lags():
    scene = Scene()
    scene.follow()
    scene.commit(scene.made)
    scene.checks.copy_changed(scene.node, "loaded")
    scene.follow()
    scene.later(900)
    judge = scene.ask(RENEW, "bob", -1)
    ends_ms = scene.world.now_ms + 1_000
    scene.commit(scene.renewed(expiration_timestamp=ends_ms))
    judge(RenewDelegationTokenResponse(expiry_timestamp_ms=ends_ms))
    scene.later(101)
    scene.checks.look(scene.node)  # it lags: there the token is over
    scene.follow()
    scene.later(900)
    assert scene.checks.unrest()
    scene.checks.look(scene.node)
    scene.commit(RemoveDelegationTokenRecord(token_id="one"))
    scene.commit(RemoveDelegationTokenRecord(token_id="one"))
    scene.follow()
    assert not scene.checks.unrest()
    assert set(scene.marks) == {
        "token-renewed", "token-over-refused", "token-from-snapshot", "token-swept",
    }  # fmt: skip


def test_a_node_that_lags_still_lets_in_a_token_that_was_removed():
    scene = Scene()
    scene.commit(scene.made)
    judge = scene.ask(END, "alice", -1)
    before = scene.image
    scene.commit(RemoveDelegationTokenRecord(token_id="one"))
    judge(ExpireDelegationTokenResponse(expiry_timestamp_ms=scene.world.now_ms))
    scene.follow(before)
    assert scene.marks["token-on-lagging-node"]


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": "User:bob"}, {"requester": "User:bob"}, {"renewers": []},
        {"max_timestamp": 1_700_000_005_001}, {"expiration_timestamp": 1_700_000_001_001},
        {"issue_timestamp": 1_700_000_000_001},
    ],
)  # fmt: skip
def test_a_token_that_nobody_asked_for_is_found(changes):
    scene = Scene()
    assert scene.violated(scene.renewed(**changes)) == "A5"


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": "User:bob"}, {"requester": "User:bob"}, {"renewers": []},
        {"issue_timestamp": 1_700_000_000_001}, {"max_timestamp": 1_700_000_005_001},
        {"expiration_timestamp": 1_700_000_005_001},
    ],
)  # fmt: skip
def test_more_than_the_end_of_a_token_never_changes(changes):
    scene = Scene()
    scene.commit(scene.made)
    scene.ask(END, "alice", 2**63 - 1)
    assert scene.violated(scene.renewed(**changes)) == "A5"


@pytest.mark.parametrize(
    ("kind", "who", "period_ms", "late_ms", "ends_ms", "is_right"),
    [
        (RENEW, "bob", -1, 500, 1_500, True), (RENEW, "bob", 300, 500, 800, True),
        (RENEW, "bob", 9_000, 500, 1_500, True), (RENEW, "bob", 9_000, 500, 5_000, False),
        (RENEW, "carol", -1, 500, 1_500, False), (RENEW, "bob", -1, 1_001, 2_001, False),
        (END, "bob", 0, 500, 500, True), (END, "alice", 2**63 - 1, 500, 5_000, True),
        (END, "alice", 2**63 - 1, 1_001, 5_000, False), (END, "alice", -1, 500, 500, False),
        (END, "carol", 0, 500, 500, False),
    ],
)  # fmt: skip
def test_an_end_is_what_somebody_may_ask_for(kind, who, period_ms, late_ms, ends_ms, is_right):
    scene = Scene()
    scene.commit(scene.made)
    scene.later(late_ms)
    scene.ask(kind, who, period_ms)
    record = scene.renewed(expiration_timestamp=scene.made.issue_timestamp + ends_ms)
    if is_right:
        scene.commit(record)
    else:
        assert scene.violated(record) == "A5"


def test_a_good_token_is_removed_for_its_people_alone_and_stays_away():
    removal = RemoveDelegationTokenRecord(token_id="one")
    scene = Scene()
    assert scene.violated(removal) == "A5"
    scene.commit(scene.made)
    scene.ask(END, "carol", -1)
    assert scene.violated(removal) == "A5"
    scene.ask(END, "bob", -1)
    scene.commit(removal)
    assert scene.violated(scene.made) == "A5"


@pytest.mark.parametrize(
    ("change", "code", "is_wrong"),
    [
        (CREATE, REFUSED, True), (CREATE, ErrorCode.NOT_CONTROLLER, False),
        (TokenChange(0, MAKE, 1, "bob", -1, "alice"), REFUSED, False),
        (TokenChange(0, MAKE, 1, SUPER_USER, -1, "alice"), REFUSED, True),
        (TokenChange(0, RENEW, 0, "bob", -1), ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, True),
        (TokenChange(0, RENEW, 0, "bob", -1), ErrorCode.DELEGATION_TOKEN_NOT_FOUND, True),
        (TokenChange(0, RENEW, 0, "bob", -1), ErrorCode.DELEGATION_TOKEN_EXPIRED, True),
        (TokenChange(0, RENEW, 0, UNKNOWN, -1), ErrorCode.DELEGATION_TOKEN_NOT_FOUND, False),
        (TokenChange(0, RENEW, 0, "carol", -1), ErrorCode.NONE, True),
        (TokenChange(0, MAKE, 1, UNKNOWN, -1), ErrorCode.NONE, True),
        (TokenChange(0, MAKE, 1, "bob", -1, "alice"), ErrorCode.NONE, True),
        (TokenChange(0, RENEW, 0, "bob", -1), ErrorCode.NONE, True),
    ],
)  # fmt: skip
def test_what_is_right_is_taken_and_what_is_wrong_refused(change, code, is_wrong):
    scene = Scene()
    scene.commit(scene.made)
    judge = scene.checks.asked(change, "" if change.kind == MAKE else "one")
    answer = RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=7)
    if change.kind == MAKE:
        answer = CreateDelegationTokenResponse(error_code=code, token_id="two")
    if is_wrong:
        with pytest.raises(Violation, match="A4"):
            judge(answer)
    else:
        judge(answer)


def test_who_comes_late_or_while_another_asks_may_be_told_that_it_is_gone():
    gone = RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED)
    scene = Scene()
    scene.commit(scene.made)
    first, _ = scene.ask(RENEW, "bob", -1), scene.ask(END, "alice", 0)
    first(gone)
    scene = Scene()
    scene.commit(scene.made)
    judge = scene.ask(RENEW, "bob", -1)
    scene.later(1_001)
    judge(gone)


def test_a_node_that_has_not_the_tokens_of_the_log_is_found():
    scene = Scene()
    scene.commit(scene.made)
    scene.node.broker.image = replace(scene.image, tokens=Map())
    assert scene.violated() == "A6"


@pytest.mark.parametrize(
    ("found", "late_ms"),
    [
        (None, 0), (LetIn("User:bob", 1_000, True), 0), (LetIn("User:alice", 1_001, True), 0),
        (LetIn("User:alice", -1, True), 0), (LetIn("User:alice", 1_000, False), 0),
        (LetIn("User:alice", 1_000, True), 1_001),
    ],
)  # fmt: skip
def test_a_login_that_is_not_as_the_token_says_is_found(monkeypatch, found, late_ms):
    scene = Scene()
    scene.commit(scene.made)
    scene.node.broker.image = scene.image
    scene.later(late_ms)

    def tried(_door, token_id, *_rest):
        return found if token_id == "one" else None

    monkeypatch.setattr("anabranch.sim.checks.tokens.try_token", tried)
    assert scene.violated() == "A7"


def test_a_token_with_anothers_password_that_lets_in_is_found(monkeypatch):
    scene = Scene()
    scene.commit(scene.made)
    scene.node.broker.image = scene.image

    def tried(_door, token_id, *_rest):
        return LetIn("User:alice", 1_000, True) if token_id == "one" else None

    monkeypatch.setattr("anabranch.sim.checks.tokens.try_token", tried)
    assert scene.violated() == "A7"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_by_hand_is_one_of_scram(mechanism):
    scene = Scene()
    scene.commit(scene.made)
    scene.node.config = BrokerConfig.of({**SETTINGS, "sasl.enabled.mechanisms": mechanism})
    scene.node.broker.image = scene.image
    door, clock = Door(scene.node), scene.checks.clock(scene.node)
    password = hmac_by_hand(SECRET, "one")
    assert try_token(door, "one", password, clock) == ("User:alice", 1_000, True)
    assert try_token(door, "one", password[:-1] + b"x", clock) is None
    assert try_token(door, "two", hmac_by_hand(SECRET, "two"), clock) is None


def test_a_clock_ahead_ends_a_token_early_and_one_behind_late():
    ahead = Scene(700)
    ahead.commit(ahead.made)
    ahead.later(400)
    ahead.follow()
    assert ahead.marks["token-by-wrong-clock"]
    ahead.commit(RemoveDelegationTokenRecord(token_id="one"))
    behind = Scene(-700)
    behind.commit(behind.made)
    behind.later(1_400)
    behind.follow()
    assert behind.marks["token-by-wrong-clock"] and not behind.checks.unrest()
    behind.later(301)
    assert behind.checks.unrest()


@pytest.mark.parametrize(("skew_ms", "what"), [(700, "removed"), (-700, "made")])
def test_no_clock_is_further_off_than_the_plan_says(skew_ms, what):
    scene = Scene(skew_ms)
    if what == "removed":
        scene.commit(scene.made)
        scene.later(250)
        assert scene.violated(RemoveDelegationTokenRecord(token_id="one")) == "A5"
    else:
        made = {each: getattr(scene.made, each) - 701 for each in TIMES}
        assert scene.violated(scene.renewed(**made)) == "A5"
