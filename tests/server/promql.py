"""As much of Prometheus' language as the shipped alert rules use, over scraped pages.

`[time() - ] AGGREGATE [by (label)] (metric)` or with `rate(metric[5m])`, `increase(…)`, `deriv(…)` or
`last_over_time(metric[1d])` inside, compared with a number; and `A unless B` of two such. A metric may be
one of a label's value. A page is one instance's text; rules that look back get the pages of before too.
"""

from __future__ import annotations

import operator
import re
import time
from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

RULE = re.compile(
    r"(?P<since>time\(\) - )?(?P<aggregate>sum|max|min)\s*(by\s*\((?P<by>\w+(, \w+)*)\)\s*)?"
    r"\(((?P<function>rate|increase|deriv|last_over_time)\()?(?P<metric>\w+)"
    r"(\{(?P<label>\w+)=\"(?P<wanted>\w+)\"\})?(\[(?P<length>\d+)(?P<unit>[md])\]\))?\)"
    r"\s*(?P<operator>>|<|!=)\s*(?P<limit>\d+)"
)
SECONDS = {"m": 60, "d": 86_400}
OPERATORS = {">": operator.gt, "<": operator.lt, "!=": operator.ne}
AGGREGATES = {"sum": sum, "max": max, "min": min}


def metrics_of(expression):
    return [each["metric"] for each in parsed(expression)]


def parsed(expression):
    """Of `A unless B` both."""
    found = [RULE.fullmatch(each) for each in expression.split(" unless ")]
    assert all(found), f"not understood: {expression}"
    assert len(found) < 3
    return [each.groupdict() for each in found]


def series_of(pages):
    """Name -> labels -> value, of all instances; `instance` becomes a label, as in a scrape."""
    series = defaultdict(dict)
    for instance, page in pages.items():
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                labels = frozenset({**sample.labels, "instance": instance}.items())
                series[sample.name][labels] = sample.value
    return series


def fires(expression, pages, before=None, now=None):
    """Whether a rule's expression has a result; `before` are pages of the window's begin, `now` the
    time in seconds."""
    now = time.time() if now is None else now
    first, *unless = [_result(rule, pages, before or {}, now) for rule in parsed(expression)]
    return bool(first - set().union(*unless))


def _result(rule, pages, before, now):
    """The label values of each group for which the comparison holds."""
    groups = defaultdict(list)
    for labels, value in _values(rule, pages, before).items():
        named = dict(labels)
        if rule["label"] is None or named.get(rule["label"]) == rule["wanted"]:
            groups[tuple(map(named.get, (rule["by"] or "").split(", ")))].append(value)
    aggregate, compare = AGGREGATES[rule["aggregate"]], OPERATORS[rule["operator"]]
    found = {key: aggregate(values) for key, values in groups.items()}
    if rule["since"]:
        found = {key: now - value for key, value in found.items()}
    return {key for key, value in found.items() if compare(value, float(rule["limit"]))}


def _values(rule, pages, before):
    current, then = series_of(pages)[rule["metric"]], series_of(before)[rule["metric"]]
    if rule["function"] is None:
        return current
    if rule["function"] == "last_over_time":
        return {**then, **current}
    grown = {labels: _grown(rule, value, then.get(labels)) for labels, value in current.items()}
    if rule["function"] == "rate":
        seconds = SECONDS[rule["unit"]] * int(rule["length"])
        grown = {labels: value / seconds for labels, value in grown.items()}
    return grown


def _grown(rule, value, before):
    """A series that was not there has not grown; a counter that began anew has grown by what it is."""
    if before is None:
        return 0
    return value - before if value >= before or rule["function"] == "deriv" else value
