"""No module imports one that imports it, not even for its types.

Why: what needs each other is one thing in two files, or has a third thing below both. A module that
is in no cycle can be read, tested and moved alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

STILL = {
    "anabranch.sim.cluster",
    "anabranch.sim.controller",
    "anabranch.sim.controller_link",
    "anabranch.sim.liveness_probe",
    "anabranch.sim.hosting",
    "anabranch.sim.machine",
    "anabranch.sim.metadata_log",
    "anabranch.sim.node",
    "anabranch.sim.session",
    "anabranch.sim.twins",
}
"""Modules that are in a cycle today, a simulated node and its parts: the list only gets shorter."""


def imports_when_loaded(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """What a module imports when it is loaded, or for types; not what a function imports."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from {inner, node.module} & known if inner not in known else (inner,)
        else:
            yield from imports_when_loaded(node, known)


def in_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that reach each other."""
    graph = pruned(graph)
    reached = {name: reach(graph, name) for name in graph}
    circular = {name for name, others in reached.items() if name in others}
    groups = {
        tuple(sorted({name} | {other for other in reached[name] if name in reached.get(other, ())}))
        for name in circular
    }
    return [list(group) for group in sorted(groups)]


def pruned(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The modules that import and are imported, again and again, until none more goes."""
    while True:
        imported = set().union(*graph.values())
        kept = {name: others & graph.keys() for name, others in graph.items() if name in imported}
        kept = {name: others for name, others in kept.items() if others}
        if kept == graph:
            return graph
        graph = kept


def reach(graph: dict[str, set[str]], start: str) -> set[str]:
    """Every module that an import leads to; the start only when a way leads back."""
    seen: set[str] = set()
    waiting = [*graph[start]]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph.get(name, ())
    return seen


def is_known(name: str) -> bool:
    return any(name == each or name.startswith(each + ".") for each in STILL)


def test_no_module_imports_one_that_imports_it(modules):
    known = {module.name for module in modules}
    graph = {
        module.name: {
            name
            for name in imports_when_loaded(module.tree, known)
            if name in known and name != module.name
        }
        for module in modules
    }
    cycles = in_cycles(graph)
    news = [group for group in cycles if not all(map(is_known, group))]
    assert not news, "modules that import each other:\n" + "\n".join(map(", ".join, news))
    names = {name for group in cycles for name in group}
    over = {each for each in STILL if not any((n + ".").startswith(each + ".") for n in names)}
    assert not over, f"in no cycle any more, strike them off STILL: {sorted(over)}"


def test_a_cycle_is_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}
    assert in_cycles(graph) == [["a", "b", "c"]]
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from x.y import z"
    assert [*imports_when_loaded(ast.parse(source), {"x.y"})] == ["x.y"]
