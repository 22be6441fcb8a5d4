"""A metric for Prometheus as data: its name, kind, meaning and labels.

Rule kept: names are the JMX exporter's where Kafka has the figure, the ecosystem's where that has
one, and begin with `anabranch_` where neither has. Not here: where figures come from.
"""

from __future__ import annotations

from typing import NamedTuple

COUNTER = "counter"
GAUGE = "gauge"
SUMMARY = "summary"


class Exported(NamedTuple):
    """One metric: a counter's name ends in `_total`; a summary is a count and a sum."""

    name: str
    kind: str
    sentence: str
    labels: tuple[str, ...] = ()
