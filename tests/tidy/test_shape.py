"""The shape of the code: docstrings, lengths of functions and files."""

from __future__ import annotations

import ast
from collections.abc import Iterator

LONGEST_FILE_LINES = 500
"""Over this a file is two ideas."""

TABLES = {
    "src/anabranch/core/errors.py": "Kafka's error codes, one line or two a code",
    "src/anabranch/sim/mutant_table.py": "the mutants, nine lines each",
}
"""Files that are one long table: longer than LONGEST_FILE_LINES, with the reason."""

LONG_FUNCTION_LINES = 40
LONGEST_FUNCTION_LINES = 80
LONG_FUNCTIONS_SHARE = 0.03
"""Functions over LONG_FUNCTION_LINES are rare, and none is over LONGEST_FUNCTION_LINES."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def functions_of(tree: ast.AST) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length_lines(function: Function) -> int:
    """Lines from the signature to the end, without the docstring."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


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
        "settings/tables/",
        "wire/control_records.py",
    )
    return any(table in place for table in tables)


def test_every_public_definition_has_a_docstring(modules):
    silent = [
        f"{module.place}:{node.lineno}: {node.name}"
        for module in modules
        for node in public_definitions(module.tree.body)
        if not ast.get_docstring(node)
        and not (isinstance(node, ast.ClassDef) and is_notation(module.place))
    ]
    assert not silent, "public definitions without a docstring:\n" + "\n".join(silent)


def test_files_hold_one_idea(modules):
    long = [
        f"{module.place}: {lines} lines"
        for module in modules
        if (lines := module.text.count("\n")) > LONGEST_FILE_LINES
        and module.place not in TABLES
        and not is_notation(module.place)
    ]
    assert not long, f"files over {LONGEST_FILE_LINES} lines:\n" + "\n".join(long)


def test_the_list_of_tables_is_true(modules):
    places = {module.place for module in modules}
    assert set(TABLES) <= places, "TABLES names a file that does not exist"


def test_functions_are_short(modules):
    lengths = [
        (length_lines(function), f"{module.place}:{function.lineno}: {function.name}")
        for module in modules
        for function in functions_of(module.tree)
    ]
    too_long = [f"{place}: {n} lines" for n, place in lengths if n > LONGEST_FUNCTION_LINES]
    assert not too_long, f"functions over {LONGEST_FUNCTION_LINES} lines:\n" + "\n".join(too_long)
    long = [f"{place}: {n} lines" for n, place in lengths if n > LONG_FUNCTION_LINES]
    allowed = max(3, int(LONG_FUNCTIONS_SHARE * len(lengths)))
    assert len(long) <= allowed, (
        f"{len(long)} functions over {LONG_FUNCTION_LINES} lines, "
        f"{allowed} allowed:\n" + "\n".join(long)
    )
