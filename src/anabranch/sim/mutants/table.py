"""All mutants: those that a schedule of the simulator catches, and those that a named test catches.

Each takes back one decision of the project. `seed` is of a schedule whose checks catch the mutant
and which is clean without it; `python -m anabranch.sim.hunt --record` looks for new ones when the
schedules change.
"""

from __future__ import annotations

from anabranch.sim.mutants import (
    brokers,
    clients,
    compaction,
    coordinator,
    diskless,
    groups,
    hosting,
    log,
    log_folders,
    log_producers,
    log_syncs,
    managed_replicas,
    metadata,
    partitions,
    replication,
    requests,
    storage,
    tenure,
    transactions,
)
from anabranch.sim.mutants.mutant import NO_SCHEDULE, Mutant

ROOMS = (
    brokers,
    clients,
    compaction,
    coordinator,
    diskless,
    groups,
    hosting,
    log,
    log_folders,
    log_producers,
    log_syncs,
    managed_replicas,
    metadata,
    partitions,
    replication,
    requests,
    storage,
    tenure,
    transactions,
)
_ALL: tuple[Mutant, ...] = tuple(mutant for room in ROOMS for mutant in room.MUTANTS)

MUTANTS = tuple(mutant for mutant in _ALL if mutant.seed != NO_SCHEDULE)
"""A schedule catches each."""
DIRECTED = tuple(mutant for mutant in _ALL if mutant.seed == NO_SCHEDULE)
"""The test that `caught_by` names catches each."""
