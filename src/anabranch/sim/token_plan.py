"""What a schedule asks about delegation tokens, drawn beside its plan.

What: half of the seeds whose rights change also have tokens: users make them, for themselves and
for each other, renew them, let them end, and come too late, while nodes lag and start again. Their
times are seconds, so that many pass their end unasked, and in half of these seeds some clocks of
the day are wrong by seconds. Some requests are wrong: of somebody who may not renew, or for an
owner who is another. Rule kept: all of it is drawn from a stream of its own, so that the rest of a
seed's plan is the same with it and without it. Not here: carrying it out
(`clients/token_workload.py`), what must hold then (`checks/tokens.py`).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.sim.plan import Plan
from anabranch.sim.plan_parts import SAFETY_US, SECOND_US, SETTLED_US, Fault, TokenChange
from anabranch.sim.rights_plan import USERS, soon_after

EVERY, OF_EACH = 16, 2
"""Of each sixteen seeds the one that has tokens too, if its rights change."""
SUPER_USER = "carol"
"""May make tokens of others."""
PEOPLE = (*USERS, SUPER_USER)
UNKNOWN = ANONYMOUS.name
SECRET = "the-key-of-all-nodes"
MAKE, RENEW, END = "make", "renew", "end"
FOR_EVER_MS = 2**63 - 1
SKEWS_MS = (-5_000, -700, 700, 5_000)
"""By how much a clock of the day is wrong: a token may be over here and good there."""
LONGEST_LIFETIME_MS = 40_000
"""All tokens are over, and removed, before a healed cluster has to be at rest."""


def with_tokens(plan: Plan) -> Plan:
    """The plan, with delegation tokens where its seed is one of those that have some."""
    if not plan.rights or plan.seed % EVERY != OF_EACH:
        return plan
    random = Random(f"{plan.seed}/tokens")
    drawn = [each for n in range(random.randrange(12, 24)) for each in _life(random, n)]
    around = [soon_after(random, random.choice(drawn).at_us) for _ in range(random.randrange(2, 7))]
    config = dict(plan.config)
    config |= {
        "super.users": f"{config['super.users']};{Principal('User', SUPER_USER)}",
        "delegation.token.secret.key": SECRET,
        "delegation.token.max.lifetime.ms": random.choice(
            ("6000", "15000", str(LONGEST_LIFETIME_MS))
        ),
        "delegation.token.expiry.time.ms": random.choice(("1500", "5000", "10000")),
        "delegation.token.expiry.check.interval.ms": random.choice(("500", "2000", "8000")),
        "sasl.enabled.mechanisms": random.choice(("SCRAM-SHA-256", "SCRAM-SHA-512")),
        "connections.max.reauth.ms": random.choice(("0", "0", "3000")),
    }
    skews = tuple(
        random.choice(SKEWS_MS) if random.random() < 0.5 else 0 for _ in range(plan.brokers)
    )
    return replace(
        plan,
        wall_skews=skews if random.random() < 0.5 else (),
        tokens=tuple(sorted(drawn, key=_begins)),
        faults=tuple(sorted((*plan.faults, *around), key=_begins)),
        config=tuple(sorted(config.items())),
    )


def _life(random: Random, number: int) -> list[TokenChange]:
    """A token is made, and what is asked about it then."""
    at_us = random.randrange(SETTLED_US, SAFETY_US - SECOND_US)
    who = random.choice((*USERS, *USERS, SUPER_USER, UNKNOWN))
    owner = random.choice(PEOPLE) if random.random() < 0.4 else ""
    renewers = tuple(random.sample(PEOPLE, random.choice((0, 1, 1, 2))))
    lifetime_ms = random.choice((-1, -1, 0, 1_500, 5_000, 20_000, FOR_EVER_MS))
    life = [TokenChange(at_us, MAKE, number, who, lifetime_ms, owner, renewers)]
    for _ in range(random.randrange(6)):
        at_us += int(SECOND_US * random.choice((0.05, 0.4, 1, 2, 6)) * (0.5 + random.random()))
        if at_us >= SAFETY_US:
            break
        asks = random.choice((*PEOPLE, *[owner or who] * 4, *renewers, *renewers))
        if random.random() < 0.7:
            period_ms = random.choice((-1, -1, 0, 400, 2_500, 60_000, FOR_EVER_MS))
            life.append(TokenChange(at_us, RENEW, number, asks, period_ms))
        else:
            period_ms = random.choice((-1, -1, 0, 300, 3_000, FOR_EVER_MS))
            life.append(TokenChange(at_us, END, number, asks, period_ms))
    return life


def _begins(each: Fault | TokenChange) -> int:
    return each.at_us
