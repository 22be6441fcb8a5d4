"""Core's tests prove decisions: no sleep, no socket, no event loop."""

from __future__ import annotations

import ast
from pathlib import Path

CORE_TESTS = Path(__file__).resolve().parents[1] / "core"
NEVER = {"asyncio", "multiprocessing", "socket", "threading"}
"""A fresh interpreter is the only way to see what an import costs, so subprocess is not here."""


def names_used(tree: ast.AST) -> set[str]:
    """Imported modules (first part) and every called attribute."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Call):
            found.add(ast.unparse(node.func))
    return found


def test_core_tests_need_no_time_and_no_world():
    breaches = [
        f"{path.relative_to(CORE_TESTS)}: {sorted(used)}"
        for path in sorted(CORE_TESTS.rglob("*.py"))
        if (used := names_used(ast.parse(path.read_text())) & (NEVER | {"time.sleep", "sleep"}))
    ]
    assert not breaches, "\n".join(breaches)


def test_tests_mirror_the_tree():
    """A folder of tests has the name of the room that it tests."""
    source = CORE_TESTS.parents[1] / "src" / "anabranch"
    strangers = [
        str(folder.relative_to(CORE_TESTS.parent))
        for room in ("core", "client", "stores", "server", "cli")
        for folder in sorted((CORE_TESTS.parent / room).rglob("*"))
        if folder.is_dir()
        and list(folder.glob("test_*.py"))
        and not (source / folder.relative_to(CORE_TESTS.parent)).exists()
    ]
    assert not strangers, f"no such room: {strangers}"
