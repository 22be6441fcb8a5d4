"""The demo's act with tiering: batches of the diskless topic become segments, one row each.

What: one run of the tiering job in the demo's own Spark session, and the coordinator's rows before
and after it. Rule kept: the job asks brokers and the store; rows are counted beside it, in the file
that this machine's coordinator is.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from anabranch.server.one_machine import COORDINATOR, OBJECTS

if TYPE_CHECKING:
    from anabranch.pipelines.tiering import Tiered

COUNTED = (
    "SELECT (SELECT count(*) FROM runs JOIN logs USING (topic_id, partition) WHERE topic_name = ?)"
    ", (SELECT count(*) FROM remote_segments JOIN logs USING (topic_id, partition) "
    "WHERE topic_name = ?)"
)


class Rows(NamedTuple):
    """What the coordinator has of a topic."""

    batches: int
    segments: int


def rows_of(folder: str, topic: str) -> Rows:
    """The rows of a topic of the cluster in `folder`, counted without a lock."""
    path = os.path.abspath(os.path.join(folder, COORDINATOR))
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return Rows(*database.execute(COUNTED, (topic, topic)).fetchone())


def tier_all(spark: Any, bootstrap: str, folder: str) -> Tiered:
    """Tier everything that is old enough. Raises ClickException where a partition was not."""
    from anabranch.pipelines.tiering import Where, tier

    done = tier(spark, Where(bootstrap, f"file://{os.path.abspath(folder)}/{OBJECTS}"))
    for partition, why in done.faults.items():
        raise click.ClickException(f"{partition} was not tiered: {why}")
    return done
