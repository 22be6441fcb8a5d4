"""As much of Prometheus' language as the shipped alert rules use, over scraped pages.

`AGGREGATE [by (label)] (metric)` or with `rate(metric[5m])`, `increase(…)` or `deriv(…)` inside, compared with
a number. A page is one instance's text; rules that count over time get the pages of before too.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

RULE = re.compile(
    r"(?P<aggregate>sum|max|min)\s*(by\s*\((?P<by>\w+(, \w+)*)\)\s*)?"
    r"\(((?P<function>rate|increase|deriv)\()?(?P<metric>\w+)(\[(?P<minutes>\d+)m\]\))?\)"
    r"\s*(?P<operator>>|<|!=)\s*(?P<limit>\d+)"
)
OPERATORS = {">": operator.gt, "<": operator.lt, "!=": operator.ne}
AGGREGATES = {"sum": sum, "max": max, "min": min}


def metric_of(expression):
    return parsed(expression)["metric"]


def parsed(expression):
    found = RULE.fullmatch(expression)
    assert found, f"not understood: {expression}"
    return found.groupdict()


def series_of(pages):
    """Name -> labels -> value, of all instances; `instance` becomes a label, as in a scrape."""
    series = defaultdict(dict)
    for instance, page in pages.items():
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                labels = frozenset({**sample.labels, "instance": instance}.items())
                series[sample.name][labels] = sample.value
    return series


def fires(expression, pages, before=None):
    """Whether a rule's expression has a result; `before` are pages of the window's begin."""
    rule = parsed(expression)
    now = series_of(pages)[rule["metric"]]
    if rule["function"]:
        then = series_of(before or {})[rule["metric"]]
        now = {labels: _grown(value, then.get(labels)) for labels, value in now.items()}
        if rule["function"] == "rate":
            now = {labels: value / (60 * int(rule["minutes"])) for labels, value in now.items()}
    groups = defaultdict(list)
    for labels, value in now.items():
        named = dict(labels)
        groups[tuple(map(named.get, (rule["by"] or "").split(", ")))].append(value)
    aggregate, compare = AGGREGATES[rule["aggregate"]], OPERATORS[rule["operator"]]
    return any(compare(aggregate(values), float(rule["limit"])) for values in groups.values())


def _grown(value, before):
    """A series that was not there has not grown; one that began anew has grown by what it is."""
    if before is None:
        return 0
    return value - before if value >= before else value
