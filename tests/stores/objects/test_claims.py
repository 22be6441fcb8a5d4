"""Nodes that begin with a new store at once agree on whose it is, whoever comes in between."""

from __future__ import annotations

import inspect
import itertools

import pytest

from anabranch.core.errors import StorageFault
from anabranch.stores.coordinator.sqlite_memory import SqliteInMemory
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.store_check import claim_store

CLUSTER = "cluster"
CALLS = 8
"""More than a claim makes."""
NUMBERS = itertools.count()


class Between:
    """A store and a coordinator as one node sees them; before its call number `at`, `rival` acts."""

    def __init__(self, at, rival):
        self.left, self.rival = at, rival

    def seen(self, target):
        outer = self

        class Seen:
            def __getattr__(self, name):
                found = getattr(target, name)
                return outer.call(found) if callable(found) else found

        return Seen()

    def call(self, method):
        async def called(*args):
            if self.left == 0:
                await self.rival()
            self.left -= 1
            answer = method(*args)
            return await answer if inspect.isawaitable(answer) else answer

        return called


@pytest.mark.parametrize("at", range(CALLS))
@pytest.mark.parametrize("writes", [False, True])
async def test_a_claim_that_another_node_makes_meanwhile_is_no_reason(at, writes):
    store = await open_objects(f"memory://claims-{next(NUMBERS)}")
    tables = SqliteInMemory(CLUSTER, lambda: 0)
    plain = Between(-1, None)

    async def rival():
        await claim_store(plain.seen(store), plain.seen(tables), CLUSTER)
        if writes:
            tables.register(1, 1)
            tables.prepare(1, 1, 3, 1_000)

    second = Between(at, rival)
    await claim_store(second.seen(store), second.seen(tables), CLUSTER)
    await claim_store(plain.seen(store), plain.seen(tables), CLUSTER)


@pytest.mark.parametrize("named", [False, True])
async def test_a_store_that_nobody_has_claimed_is_not_the_coordinators(named):
    """It has a store of its own, or has named objects."""
    store = await open_objects(f"memory://claims-{next(NUMBERS)}")
    tables = SqliteInMemory(CLUSTER, lambda: 0)
    if named:
        tables.register(1, 1)
        tables.prepare(1, 1, 1, 1_000)
    else:
        tables.store("another")
    plain = Between(-1, None)
    with pytest.raises(StorageFault, match="no cluster has used this place"):
        await claim_store(plain.seen(store), plain.seen(tables), CLUSTER)
