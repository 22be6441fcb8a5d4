"""What a schedule changes of access rules, credentials and quotas, drawn beside its plan.

What: for some seeds a warden adds and removes access rules (ACLs), SCRAM credentials and quotas of
few users and topics, so that rules meet, while nodes crash, lag behind, and start from snapshots of
the metadata: these are written often there. Rule kept: all of it is drawn from a stream of its own,
so that the rest of a seed's plan is the same with it and without it. Clients and nodes are super
users; the checks ask each node about others. Not here: carrying it out
(`clients/rights_workload.py`), what must hold then (`checks/rights.py`).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anabranch.core.access.acls import ALLOW, DENY, LITERAL, PREFIXED, Acl
from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.access.standard_authorizer import ALL, STANDARD_AUTHORIZER
from anabranch.sim.metadata_plan import FEW_BYTES
from anabranch.sim.plan import Plan, draw_fault
from anabranch.sim.plan_parts import (
    SAFETY_US,
    SECOND_US,
    SETTLED_US,
    Fault,
    RightsChange,
)

FIRST_SEED, EVERY, OF_EACH = 1_000, 8, 2
"""From the first on, of each eight seeds the one whose rights change."""
USERS = ("alice", "bob")
HOSTS = ("10.0.0.1", "10.0.0.2")
TOPICS = ("topic-0", "topic-1", "top", "other")
"""Names that rules and questions are about; prefixes of each other among them."""
MECHANISMS = (1, 2)
QUOTA = "consumer_byte_rate"
ENTITIES = tuple(
    tuple(pair for pair in (("client-id", client), ("user", user)) if pair[1] != "-")
    for user in ("-", None, "alice", "bob")
    for client in ("-", None, "app")
    if (user, client) != ("-", "-")
)
"""Whose quotas: users, client ids and both, each by name and by default (None)."""
AROUND = ("metadata-snapshot", "metadata-snapshot", "crash", "power", "wipe", "slow-restart",
          "controller-crash", "isolate", "pause")  # fmt: skip
"""What goes wrong soon after a change: nodes lag, and start again from what they have."""


def with_changed_rights(plan: Plan) -> Plan:
    """The plan, with rights that change where its seed is one of those that have some."""
    if plan.seed < FIRST_SEED or plan.seed % EVERY != OF_EACH:
        return plan
    random = Random(f"{plan.seed}/rights")
    drawn = [each for _ in range(random.randrange(25, 45)) for each in _episode(random)]
    around = [soon_after(random, random.choice(drawn).at_us) for _ in range(random.randrange(3, 8))]
    config = {
        **dict(plan.config),
        FEW_BYTES: str(random.choice((1_500, 1_500, 4_000))),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": str(ANONYMOUS),
        "allow.everyone.if.no.acl.found": random.choice(("true", "false")),
    }
    return replace(
        plan,
        rights=tuple(sorted(drawn, key=_begins)),
        faults=tuple(sorted((*plan.faults, *around), key=_begins)),
        config=tuple(sorted(config.items())),
    )


def _episode(random: Random) -> list[RightsChange]:
    """Something is given, and most of the time taken back some seconds later."""
    at_us = random.randrange(SETTLED_US, SAFETY_US - SECOND_US)
    kind = random.random()
    if kind < 0.6:
        given = RightsChange(at_us, _acl(random), value=True)
    elif kind < 0.8:
        user = (random.choice(MECHANISMS), random.choice(USERS))
        given = RightsChange(at_us, user, random.randbytes(8))
    else:
        entity = (random.choice(ENTITIES), QUOTA)
        given = RightsChange(at_us, entity, float(random.randrange(1, 9) * 1_000))
    if random.random() < 0.3:
        return [given]
    later_us = at_us + int(SECOND_US * random.choice((0.2, 2, 6, 15)) * (0.5 + random.random()))
    return [given, RightsChange(min(later_us, SAFETY_US - 1), given.what, None)]


def _acl(random: Random) -> Acl:
    pattern = random.choice((LITERAL, LITERAL, PREFIXED))
    return Acl(
        ResourceType.TOPIC,
        pattern,
        random.choice((*TOPICS, "*") if pattern == LITERAL else TOPICS),
        random.choice([f"User:{each}" for each in (*USERS, "*")]),
        random.choice((*HOSTS, "*", "*")),
        int(random.choice((ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE))),
        random.choice((ALLOW, ALLOW, DENY)),
    )


def soon_after(random: Random, at_us: int) -> Fault:
    """Something that goes wrong about when a change is asked for."""
    at_us = max(SETTLED_US, at_us + random.randrange(-SECOND_US, 3 * SECOND_US))
    return replace(draw_fault(random, AROUND), at_us=min(at_us, SAFETY_US - SECOND_US))


def _begins(each: Fault | RightsChange) -> int:
    return each.at_us
