"""Compaction without Spark."""

from __future__ import annotations

import json

from anabranch.pipelines.compaction import key_rows
from anabranch.pipelines.compaction_task import rewrite_task


def run_here(_spark, tasks):
    """Groups of segments without Spark: what it shuffles is compared in a dictionary."""
    newest, groups = {}, {}
    for task in tasks:
        for row in key_rows(task).to_pylist():
            key = row["log"], row["high"], row["low"]
            newest[key] = max(newest.get(key, (-2, -1)), (row["offset"], row["group"]))
            groups[key] = groups.get(key, 0) + 1
    answers = []
    for task in tasks:
        own = {key: at for key, (at, group) in newest.items() if group == task.number}
        alone = {at for key, at in own.items() if groups[key] == 1}
        answers.append(json.loads(json.dumps(rewrite_task(task, set(own.values()), alone))))
    return answers
