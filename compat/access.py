"""Random sets of ACLs with questions, and what Kafka's StandardAuthorizer and ours answer.

Both get the same worlds: few names, principals and addresses, so that rules meet. Kafka's class
runs in a JVM of its own (`Authorizer.java`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from anabranch.core.access.acl_filter import AclFilter
from anabranch.core.access.acls import NO_ACLS, Acl
from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.access.principal import Principal
from anabranch.core.access.standard_authorizer import StandardAuthorizer, super_users_of
from anabranch.core.request import Request
from compat.java import java

World = dict[str, Any]

SEED = 20_260_101
WORLDS = 3_000
MOST_ACLS = 12
QUESTIONS = 12
FILTERS = 4
NAMES = ("a", "ab", "abc", "b", "*", "a*", "ä", "ää", "hardcode", "hard", "🎈", "🎈a")
USERS = ("User:alice", "User:bob", "User:*", "Group:alice", "User:a:b", "User:")
ASKERS = ("User:alice", "User:bob", "Group:alice", "User:a:b", "User:root")
HOSTS = ("*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1", "::1", "fe80:0:0:0:0:0:a:1")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "::1", "fe80::a:1", "::ffff:10.0.0.1")
ALL = 2


def worlds(seed: int = SEED, count: int = WORLDS) -> list[World]:
    """The same ones for a seed each time."""
    random = Random(seed)
    return [_world(random) for _ in range(count)]


def _world(random: Random) -> World:
    names = random.sample(NAMES, random.randint(1, len(NAMES)))
    types = random.sample([int(each) for each in ResourceType], random.randint(1, 4))
    operations = random.sample([ALL, *map(int, Operation)], random.randint(1, 6))

    def acl() -> tuple[Any, ...]:
        return (
            random.choice(types), random.choice((3, 3, 4)), random.choice(names),
            random.choice(USERS), random.choice(HOSTS), random.choice(operations),
            random.choice((2, 3, 3)),
        )  # fmt: skip

    def asked() -> tuple[Any, ...]:
        name = None if random.random() < 0.3 else random.choice((*names, "", "abcd"))
        operation = random.choice([each for each in operations if each != ALL] or [8])
        wanted = random.choice((operation, operation, 8, 10))
        return (
            random.choice(ASKERS), random.choice(ADDRESSES), wanted, random.choice(types), name,
        )  # fmt: skip

    def wanted() -> tuple[Any, ...]:
        return (
            random.choice((1, *types)), random.choice((1, 2, 3, 4)),
            random.choice((None, *names, "abcd")), random.choice((None, *USERS)),
            random.choice((None, None, *HOSTS)), random.choice((1, 1, *operations)),
            random.choice((1, 1, 2, 3)),
        )  # fmt: skip

    return {
        "super": random.choice(("", "", "User:root", "User:root;User:a:b")),
        "open": random.choice(("true", "false")),
        "acls": list(dict.fromkeys(acl() for _ in range(random.randint(0, MOST_ACLS)))),
        "asked": [asked() for _ in range(QUESTIONS)],
        "filters": [wanted() for _ in range(FILTERS)],
    }


def kafkas_answers(given: Sequence[World], folder: Path) -> list[World]:
    """What Kafka's class answers."""
    program = Path(__file__).with_name("Authorizer.java")
    lines = "".join(json.dumps(each) + "\n" for each in given)
    ran = subprocess.run(
        java(folder, program), input=lines, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]


def our_answers(given: Sequence[World]) -> list[World]:
    """What ours answers."""
    return [_answer(world) for world in given]


def _answer(world: World) -> World:
    rules = NO_ACLS.mutate()
    for place, fields in enumerate(world["acls"]):
        rules.add(place.to_bytes(16), Acl(*fields))
    acls = rules.finish()
    authorizer = StandardAuthorizer(
        lambda: acls, super_users_of(world["super"]), open_without_acl=world["open"] == "true"
    )
    allowed = "".join("01"[_is_allowed(authorizer, asked)] for asked in world["asked"])
    found = []
    for kind, pattern, name, *entry in world["filters"]:
        matching = AclFilter(kind, name, pattern, *entry).of(acls)
        found.append(sorted(int.from_bytes(acl_id) for acl_id, _ in matching))
    return {"allowed": allowed, "found": found}


def _is_allowed(authorizer: StandardAuthorizer, asked: Sequence[Any]) -> bool:
    who, host, operation, kind, name = asked
    user_type, _, user = who.partition(":")
    request = Request(0, 0, 0, "", None, Principal(user_type, user), "PLAINTEXT", host, 1)
    if name is None:
        return authorizer.authorize_by_type(request, Operation(operation), ResourceType(kind))
    return authorizer.authorize(request, Operation(operation), ResourceType(kind), name)
