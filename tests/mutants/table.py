"""All mutants: those that a schedule of the simulator catches, and those that a named test catches.

Each takes back one decision of the project. `seed` is of a schedule whose checks catch the mutant
and which is clean without it; `python -m tests.mutants.hunt --record` looks for new ones when the
schedules change.
"""

from __future__ import annotations

from tests.mutants import (
    access,
    brokers,
    checkpoints,
    clients,
    compaction,
    coordinator,
    delegation_tokens,
    diskless,
    groups,
    growth,
    hosting,
    log,
    log_folders,
    log_producers,
    log_syncs,
    logins,
    managed_replicas,
    metadata,
    mirrors,
    partitions,
    quotas,
    rehearsals,
    remote,
    replication,
    requests,
    seals,
    settings,
    storage,
    tenure,
    tiering,
    transactions,
)
from tests.mutants.mutant import NO_SCHEDULE, Mutant

SUBJECTS = (
    ("Replication", replication),
    ("Leaders, in-sync replicas and moves", partitions),
    ("Controllers", tenure),
    ("Metadata log", metadata),
    ("Tiering of diskless topics", tiering),
    ("Classic topics that become diskless", seals),
    ("Brokers", brokers),
    ("Hosted logs and folders", hosting),
    ("Logs", log),
    ("Syncs", log_syncs),
    ("Log folders", log_folders),
    ("Producers and transactions in logs", log_producers),
    ("Compaction", compaction),
    ("Requests", requests),
    ("Access control", access),
    ("Logins", logins),
    ("Delegation tokens", delegation_tokens),
    ("Quotas", quotas),
    ("Settings that change", settings),
    ("Groups and offsets", groups),
    ("Transactions", transactions),
    ("Diskless data path", diskless),
    ("Diskless coordinator", coordinator),
    ("Combined manifests", checkpoints),
    ("Object stores", storage),
    ("Managed replicas of diskless topics", managed_replicas),
    ("Growth over time", growth),
    ("Mirrors", mirrors),
    ("Remote logs", remote),
    ("Client", clients),
    ("Rehearsals on processes", rehearsals),
)
"""A heading of the documentation, and the module whose mutants stand under it."""
ROOMS = tuple(room for _, room in SUBJECTS)
_ALL: tuple[Mutant, ...] = tuple(mutant for room in ROOMS for mutant in room.MUTANTS)

MUTANTS = tuple(mutant for mutant in _ALL if mutant.seed != NO_SCHEDULE)
"""A schedule catches each."""
DIRECTED = tuple(mutant for mutant in _ALL if mutant.seed == NO_SCHEDULE)
"""The test that `caught_by` names catches each."""
