"""The shape of the code: every module and every public definition says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def is_stub(node: ast.AST) -> bool:
    """A body of `...` alone: a Protocol's method or an overload."""
    body = getattr(node, "body", [])
    return (
        len(body) == 1
        and isinstance(body[0], ast.Expr)
        and (isinstance(body[0].value, ast.Constant) and body[0].value.value is ...)
    )


def is_accessor(node: ast.AST) -> bool:
    """A property's setter or an overload says nothing that the first definition did not."""
    names = {ast.unparse(each).split(".")[-1] for each in getattr(node, "decorator_list", [])}
    return bool(names & {"setter", "overload"})


def public_definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    """Public functions and classes of a module or class body; what functions hold is private."""
    for node in body:
        if isinstance(node, ast.If):
            yield from public_definitions(node.body)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_") or is_stub(node) or is_accessor(node):
            continue
        yield node
        if isinstance(node, ast.ClassDef):
            yield from public_definitions(node.body)


def test_every_module_says_what_it_is(modules):
    silent = [module.place for module in modules if not ast.get_docstring(module.tree)]
    assert not silent, "modules without a docstring:\n" + "\n".join(silent)


def is_notation(place: str) -> bool:
    """Schema notation: there the class is the documentation, named as Kafka names the struct."""
    tables = (
        "wire/messages/",
        "metadata_records.py",
        "offsets_records.py",
        "transaction_records.py",
        "settings/tables/",
        "wire/control_records.py",
    )
    return any(table in place for table in tables)


class Classes:
    """The classes of the package by name, to find methods that a base or a protocol documents."""

    def __init__(self, modules):
        nodes = [each for module in modules for each in ast.walk(module.tree)]
        self._classes = [each for each in nodes if isinstance(each, ast.ClassDef)]
        self._bases = {each.name: [] for each in self._classes}
        self._own = {each.name: {} for each in self._classes}
        for each in self._classes:
            self._bases[each.name] += [
                ast.unparse(base).split("[")[0].split(".")[-1] for base in each.bases
            ]
            self._own[each.name] |= {
                node.name: bool(ast.get_docstring(node)) or is_stub(node)
                for node in each.body
                if isinstance(node, Function)
            }

    def above(self, name):
        """A class and all that it inherits from."""
        found, left = [], [name]
        while left:
            each = left.pop()
            if each in self._bases and each not in found:
                found.append(each)
                left += self._bases[each]
        return found

    def methods(self, name):
        return {each for base in self.above(name) for each in self._own[base]}

    def documented(self):
        """Methods, by their places in the source, that a base has documented, or a protocol
        whose methods the class has all."""
        protocols = [name for name, bases in self._bases.items() if "Protocol" in bases]
        for each in self._classes:
            mine = self.methods(each.name)
            followed = {
                base
                for name in protocols
                if self.methods(name) <= mine
                for base in self.above(name)
            }
            above = (followed | set(self.above(each.name))) - {each.name}
            told = {name for base in above for name, is_told in self._own[base].items() if is_told}
            yield from (
                node for node in each.body if isinstance(node, Function) and node.name in told
            )


def test_every_public_definition_has_a_docstring(modules):
    told = set(Classes(modules).documented())
    silent = [
        f"{module.place}:{node.lineno}: {node.name}"
        for module in modules
        for node in public_definitions(module.tree.body)
        if not ast.get_docstring(node)
        and node not in told
        and not (isinstance(node, ast.ClassDef) and is_notation(module.place))
    ]
    assert not silent, "public definitions without a docstring:\n" + "\n".join(silent)


NOUNS = {"fencing", "following", "hosting", "setting", "testing", "tiering"}
"""Module names that end in -ing and stay: decision 67 says why."""


def test_no_override_only_points_at_what_it_overrides(modules):
    pointers = [
        f"{node.name} at line {node.lineno}: {text}"
        for node in Classes(modules).documented()
        if (text := ast.get_docstring(node) or "").startswith("See ")
    ]
    assert not pointers, "say what is different, or nothing:\n" + "\n".join(pointers)


def test_modules_are_named_by_what_they_hold(modules):
    last = {module.name: module.name.rpartition(".")[2] for module in modules}
    verbs = sorted(name for name, own in last.items() if own.endswith("ing") and own not in NOUNS)
    assert not verbs, f"name them by what they hold, not by what is done: {verbs}"
