"""No module imports one that imports it: not for its types, and not inside a function either.

Why: modules that need each other are one thing in two files, or both need a third thing that stands
below them. A module that is in no cycle can be read, tested and moved alone. What counts: every
import statement anywhere in a file, `import_module` with a literal name, and the package of what
is imported, since its `__init__` runs too. Not here: names that are computed, by which a registry
finds its modules; which room may import which (`test_imports.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest


def imported(tree: ast.AST, module: str, known: set[str]) -> dict[str, int]:
    """The known modules that a module imports, with the first line that does so.

    `module` is its own name: the scripts of a folder import each other by their bare names."""
    lines: dict[str, int] = {}
    for name, line in sorted(names_in(tree), key=lambda found: found[1]):
        for each in modules_of(name, module, known):
            lines.setdefault(each, line)
    lines.pop(module, None)
    return lines


def names_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Everything that is imported, by its whole name, and the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and called(node) == "import_module":
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value, node.lineno


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def modules_of(name: str, module: str, known: set[str]) -> set[str]:
    """The modules that run when a name is imported: its own, and the packages that contain it and
    not the importer."""
    for whole in (name, *beside(name, module, known)):
        parts = whole.split(".")
        above = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
        found = [each for each in above if each in known]
        if found:
            return {found[0], *(each for each in found[1:] if not is_in(module, each))}
    return set()


def beside(name: str, module: str, known: set[str]) -> tuple[str, ...]:
    """A script also looks in its folder, which is no package."""
    folder = module.rpartition(".")[0]
    return () if folder in known else (f"{folder}.{name}",)


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def in_cycles(graph: dict[str, dict[str, int]]) -> list[list[str]]:
    """The groups of modules that reach each other."""
    pruned = without_ends(graph)
    reached = {name: reach(pruned, name) for name in pruned}
    groups = {
        tuple(sorted({name} | {other for other in reached[name] if name in reached[other]}))
        for name in pruned
        if name in reached[name]
    }
    return [list(group) for group in sorted(groups)]


def without_ends(graph: dict[str, dict[str, int]]) -> dict[str, set[str]]:
    """The modules that import and are imported, again and again, until none more goes."""
    kept = {name: set(others) for name, others in graph.items()}
    while True:
        wanted = set().union(*kept.values())
        smaller = {name: others & kept.keys() for name, others in kept.items() if name in wanted}
        smaller = {name: others for name, others in smaller.items() if others}
        if smaller == kept:
            return kept
        kept = smaller


def reach(graph: dict[str, set[str]], start: str) -> set[str]:
    """Every module that an import leads to; the start only when a way leads back."""
    seen: set[str] = set()
    waiting = [*graph[start]]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph[name]
    return seen


def told(group: list[str], graph: dict[str, dict[str, int]]) -> str:
    """The modules of a cycle, and the lines that make it one."""
    lines = [
        f"  {name}:{line} imports {other}"
        for name in group
        for other, line in sorted(graph[name].items())
        if other in group
    ]
    return "\n".join((f"{len(group)} modules import each other:", *lines))


def test_no_module_imports_one_that_imports_it(modules, tools):
    every = [*modules, *tools]
    known = {module.name for module in every}
    graph = {module.name: imported(module.tree, module.name, known) for module in every}
    found = [told(group, graph) for group in in_cycles(graph)]
    assert not found, "\n".join(found)


def test_a_cycle_is_found_and_told():
    graph = {"a": {"b": 1}, "b": {"c": 2}, "c": {"a": 3, "d": 4}, "d": {}, "e": {"a": 5}}
    assert in_cycles(graph) == [["a", "b", "c"]]
    assert told(["a", "b", "c"], graph).splitlines()[1:] == [
        "  a:1 imports b",
        "  b:2 imports c",
        "  c:3 imports a",
    ]


KNOWN = {"x", "x.y", "x.y.z", "x.other", "bench.scale", "bench.rows"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import x.y.z", {"x.y", "x.y.z"}),
        ("from x.y import z", {"x.y", "x.y.z"}),
        ("from x.y.z import name", {"x.y", "x.y.z"}),
        ("from x.y import name", {"x.y"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from x import y", {"x.y"}),
        ("def f():\n    from x import y", {"x.y"}),
        ("class C:\n    def f(self):\n        import x.y", {"x.y"}),
        ("try:\n    import x.y\nexcept ImportError:\n    pass", {"x.y"}),
        ("import importlib\nimportlib.import_module('x.y')", {"x.y"}),
        ("import json", set()),
    ],
)
def test_every_way_to_import_counts(source, found):
    assert set(imported(ast.parse(source), "x.other", KNOWN)) == found


def test_scripts_import_each_other_by_their_bare_names():
    assert set(imported(ast.parse("from scale import scaled"), "bench.rows", KNOWN)) == {
        "bench.scale"
    }
    assert not imported(ast.parse("import scale"), "x.other", KNOWN)
