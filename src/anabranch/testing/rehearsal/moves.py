"""What an operator has moved on processes: brokers drained, and added ones given their share.

Rule kept: the steps are those of the simulated operator (`sim/rehearsal/moves.py`), by the requests
of `anabranch plan`. An added broker gets its share once it serves, and what follows waits until it
has it, since it is placed by who has what. Not here: how processes are started (`machines.py`).
"""

from __future__ import annotations

import asyncio

from anabranch.client.admin import cordon
from anabranch.client.cluster import Cluster
from anabranch.client.plans import View, look, plan
from anabranch.client.reassignments import reassign, under_way
from anabranch.core.placement.move_plans import Plan, drain, fill
from anabranch.core.sentences import named
from anabranch.testing.nodes import ClusterError

LOOK_SECONDS = 0.1
LOOKS_MOST = 600
"""For an added broker to be known, and again for what it is given to be copied: a minute at least,
where records are few."""


async def drained(cluster: Cluster, brokers: tuple[int, ...]) -> None:
    """Cordon brokers and move every replica off them."""
    for each in brokers:
        await cordon(cluster, each)
    await _carry_out(cluster, plan(await look(cluster), lambda it: drain(it, brokers)))


async def filled(cluster: Cluster, brokers: tuple[int, ...]) -> None:
    """Give brokers that serve their share, and wait until they have it.

    Raises ClusterError for brokers that are not known, and leaves moves that do not end.
    """
    view = await _with(cluster, set(brokers))
    await _carry_out(cluster, plan(view, lambda layout: fill(layout, brokers)))
    for _ in range(LOOKS_MOST):
        if not await under_way(cluster):
            break
        await asyncio.sleep(LOOK_SECONDS)


async def _with(cluster: Cluster, brokers: set[int]) -> View:
    """The cluster, once its metadata has these brokers as active."""
    for _ in range(LOOKS_MOST):
        view = await look(cluster)
        if brokers <= {each.broker_id for each in view.sites if each.active}:
            return view
        await asyncio.sleep(LOOK_SECONDS)
    ids = named(sorted(brokers), "broker")
    raise ClusterError(f"Serving, but not active: {ids}. The logs of these brokers say why.")


async def _carry_out(cluster: Cluster, made: Plan) -> None:
    if made.moves:
        await reassign(cluster, {each.place: each.after for each in made.moves})
