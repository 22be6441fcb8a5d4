"""Numbers agree with their nouns in what people are told: "1 segment", never "1 segments"."""

from __future__ import annotations

import ast
import re

import pytest
from tests.tidy.conftest import ROOT

SOURCE = ROOT / "src" / "anabranch"
TOLD = (
    "cli", "client", "pipelines", "server", "testing", "sim/rehearsal", "sim/campaign.py",
    "core/controller", "core/diskless/verifier.py", "core/mirror", "core/placement", "core/remote",
)  # fmt: skip
"""What commands, jobs and logs say; texts about bytes on the wire are for programmers."""
NOUNS = (
    "batches", "brokers", "carriers", "differences", "faults", "fields", "files", "folders", "groups", "manifests",
    "members", "moves", "nodes", "objects", "obstacles", "offsets", "operations", "partitions", "processes", "racks", "records",
    "replicas", "requests", "rows", "runs", "schedules", "segments", "settings", "steps", "tasks", "topics",
    "transactions", "users",
)  # fmt: skip
NO_NUMBERS = ("name", "node_id", "partition", "place", "topic", "whose")
BEFORE = "active|corrupt|finished|more|other|registered|usable"
PLURAL = re.compile(rf" (?:(?:{BEFORE}) )?(?:{'|'.join(NOUNS)})(?![\w/])")


def counted_by_hand(tree: ast.AST) -> list[str]:
    """Texts in which a plural follows a number that may be 1."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for value, after in zip(node.values, node.values[1:], strict=False):
                if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                    if PLURAL.match(str(after.value)) and not is_plain(value):
                        found.append(f"{{{ast.unparse(value.value)}}}{after.value}")
    return found


def is_plain(value: ast.FormattedValue) -> bool:
    """Whether it is no whole number, or a constant that is more than 1."""
    if value.format_spec is not None and "." in ast.unparse(value.format_spec):
        return True
    text = ast.unparse(value.value)
    return text.isupper() or text.split(".")[-1] in NO_NUMBERS


FILES = sorted(
    path
    for each in TOLD
    for path in ([SOURCE / each] if each.endswith(".py") else (SOURCE / each).rglob("*.py"))
)


def test_one_is_not_told_as_many():
    found = {
        f"{path.relative_to(ROOT)}: {said}"
        for path in FILES
        for said in counted_by_hand(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert not found, "say them with core.sentences.number_of:\n" + "\n".join(sorted(found))


@pytest.mark.parametrize(
    ("text", "is_bad"),
    [
        ("f'{n} rows'", True), ("f'{n:,} finished segments of it'", True),
        ("f'{number_of(n, \"row\")} of it'", False), ("f'{MOST} rows'", False), ("f'{rate:.0f} rows a minute'", False),
        ("f'{n} rows/s'", False),
    ],
)  # fmt: skip
def test_the_search_finds_what_it_should(text, is_bad):
    assert bool(counted_by_hand(ast.parse(text))) == is_bad
