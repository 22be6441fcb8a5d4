"""How far a stream is behind, from the progress that Spark reports.

Spark lets a Python source report one thing: its newest offsets. The difference to where a batch
ended is the lag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anabranch.pipelines.offset_ranges import Offsets
from anabranch.pipelines.stream_offsets import stream_offsets


def lag(progress: Mapping[str, Any] | Any, source: int = 0) -> Offsets:
    """Records between the end of a batch and the end of the log, by partition.

    `progress` is a query's `lastProgress`, as an object or as the dictionary of its JSON, and
    `source` the number of the source in the query. Nothing is known before the first progress.
    """
    if progress is None:
        return {}
    told = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    described = told["sources"][source]
    end, newest = (
        stream_offsets(_offsets(described[name])).offsets for name in ("endOffset", "latestOffset")
    )
    return {place: max(0, offset - end.get(place, 0)) for place, offset in newest.items()}


def _offsets(told: Any) -> Mapping[str, Any]:
    """Spark gives offsets as JSON, or as the text of it."""
    found: Mapping[str, Any] | None = json.loads(told) if isinstance(told, str) else told
    return found or {}
