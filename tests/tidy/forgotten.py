"""What a change by a recipe of CONTRIBUTING.md has forgotten: a sentence each, which names the file.

What: an API key, a metadata record, a topic setting, a placer and a metric each stand in more than
one file; these functions compare the files of the package that is imported. `python forgotten.py`
prints what they find. Not here: whether what was added is right (its own tests).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import anabranch

PACKAGE = Path(anabranch.__file__).parent
NOT_REPLAYED = {
    "UserScramCredentialRecord", "ClientQuotaRecord",
    "AccessControlEntryRecord", "RemoveAccessControlEntryRecord", "ZkMigrationStateRecord",
    "RemoveUserScramCredentialRecord", "AbortTransactionRecord",
}  # fmt: skip
"""Records that Kafka writes and this version refuses to follow."""
POSITION = {"offset", "epoch"}
"""Fields of an image that the name of a snapshot says."""
FOUND_FROM_OTHERS = {"topic_ids_by_name"}
"""Fields of an image that say again what another one says."""
ONLY_DISKLESS = {"managed"}
"""Placers that no setting names."""


def source(place: str) -> str:
    """The text of a file of the package."""
    return (PACKAGE / place).read_text()


def of_api_keys() -> Iterator[str]:
    """A handler's file, the table of API keys and the module of its messages."""
    table = import_module("anabranch.core.wire.messages").API_KEYS
    unserved = import_module("anabranch.core.api.unserved").UNSERVED  # what only our client sends
    files = {
        int(path.stem[1:].partition("_")[0]): path.stem
        for path in (PACKAGE / "core/api").glob("p[0-9][0-9]*_*")
    }
    for key, stem in sorted(files.items()):
        if key not in table:
            yield f"core/wire/messages/__init__.py does not list API key {key} of {stem}.py"
    for key, api in table.items():
        family = f"core/wire/messages/{api.module}.py"
        if not (PACKAGE / family).exists():
            yield f"{family} is missing, with the messages of API key {key}"
        elif key not in files and key not in unserved:
            yield f"core/api/p{key:02}_{api.module}.py is missing: nothing answers API key {key}"


def of_records() -> Iterator[str]:
    """A record's class, its concern, that concern's line in the table, and the image's field."""
    texts = source("core/wire/own_records.py") + source("core/wire/metadata_records.py")
    classes = set(re.findall(r"^class (\w+Record)\(Message", texts, re.M))
    concerns = _concerns()
    table = source("core/metadata/concerns/table.py")
    named = re.findall(r"^    (\w+),$", table.split("CONCERNS = (")[1].split("\n)")[0], re.M)
    for name in sorted(set(concerns) - set(named)):
        yield f"core/metadata/concerns/table.py does not name the concern {name}"
    missing = sorted(set(named) - set(concerns))
    for name in missing:
        yield f"core/metadata/concerns/{name}.py is missing, which table.py names"
    rules = set(re.findall(r"\b(\w+Record): _", "".join(concerns.values()) + table))
    for name in sorted(rules - classes):
        yield f"core/wire/own_records.py (or metadata_records.py) has no {name}"
    if missing:
        return  # it has the rules, and writes the fields
    for name in sorted(classes - rules - NOT_REPLAYED):
        yield f"core/metadata/concerns/ has no file with a rule for {name}"
    fields = _fields(source("core/metadata/image.py"), "MetadataImage")
    all_texts = "".join(concerns.values())
    changed = re.findall(r'builder\.(?:scalars\[|changing\()"(\w+)"', all_texts)
    for name in sorted(set(changed) - fields):
        yield f"core/metadata/image.py has no field {name}, which a concern changes"
    for name in sorted(fields - POSITION - FOUND_FROM_OTHERS):
        if f"image.{name}" not in all_texts:
            yield f"core/metadata/concerns/ has no file whose snapshot writes {name} of an image"


def _concerns() -> dict[str, str]:
    """The texts of the concerns, by the name of their module."""
    paths = (PACKAGE / "core/metadata/concerns").glob("*.py")
    texts = {path.stem: path.read_text() for path in paths if path.stem != "table"}
    return {name: text for name, text in texts.items() if "\nRULES" in text}


def _fields(text: str, name: str) -> set[str]:
    """The annotated attributes of a class."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
    raise AssertionError(f"there is no class {name}")


def of_topic_settings() -> Iterator[str]:
    """A setting's row, its typed attribute, and the code that obeys it if it is in force."""
    tables = [
        f"core/settings/tables/{path.name}"
        for path in (PACKAGE / "core/settings/tables").glob("*.py")
    ]
    rows = {name for table in tables for name in _rows(table)}
    attributes = _fields(source("core/settings/topic.py"), "TopicConfig")
    for name in sorted(_rows("core/settings/tables/topic.py") - attributes):
        yield f"core/settings/topic.py has no attribute {name}, of which there is a row"
    for name in sorted(attributes - rows):
        yield f"core/settings/tables/topic.py (or a neighbour) has no row for the attribute {name}"
    read = set(_read())
    for table in tables:
        for name in sorted(_rows(table, "IN_FORCE") & attributes - read):
            yield (
                f"{table} marks {name} in force, and no code reads it: add what reads it, or "
                "remove IN_FORCE"
            )


def _read() -> Iterator[str]:
    """The attributes that the code reads; what the log is told of a topic is read there."""
    for folder in ("core", "server"):
        for path in (PACKAGE / folder).rglob("*.py"):
            if "tables" not in path.parts and "wire" not in path.parts:
                yield from re.findall(r"\.(\w+)\b", path.read_text())


def _rows(table: str, mark: str = "") -> set[str]:
    """The attributes of the settings of a table, or of those with a mark."""
    rows = re.split(r'^    row\("', source(table), flags=re.M)[1:]
    return {re.sub(r"\W", "_", each.partition('"')[0]) for each in rows if mark in each}


def of_placers() -> Iterator[str]:
    """A placer's function and its name in the table."""
    folder = PACKAGE / "core/placement"
    table = source("core/placement/placers.py")
    for name in re.findall(r"^from anabranch\.core\.placement\.(\w+) import", table, re.M):
        if not (folder / f"{name}.py").exists():
            yield f"core/placement/{name}.py is missing, which placers.py names"
    for path in sorted(folder.glob("*.py")):
        is_placer = re.search(rf"^def {path.stem}\(brokers\b.*\bask\b", path.read_text(), re.M)
        if is_placer and path.stem not in ONLY_DISKLESS and f": {path.stem}," not in table:
            yield f"core/placement/placers.py does not name the placer {path.stem}"


def of_metrics() -> Iterator[str]:
    """A metric's sample and its sentence."""
    listed = {each.name for each in import_module("anabranch.server.exported").METRICS}
    given = set(_sampled(ast.parse(source("server/metrics.py"))))
    for name in sorted(listed):
        if not any(re.fullmatch(pattern, name) for pattern in given):
            yield f"server/metrics.py has no sample of {name}, which exported.py lists"
    for pattern in sorted(given):
        if not any(re.fullmatch(pattern, name) for name in listed):
            yield f"server/exported.py does not list {pattern}"


def _sampled(tree: ast.Module) -> Iterator[str]:
    """The names that are yielded with a value, as patterns: a piece that is formatted is any."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        prefix = [""]
        for node in sorted(ast.walk(function), key=lambda each: getattr(each, "lineno", 0)):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "prefix":
                prefix = _pattern(node.value, prefix)
            elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
                yield from _pattern(node.value.elts[0], prefix)


def _pattern(node: ast.expr, prefix: list[str]) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            return [re.escape(text)]
        case ast.Name(id="prefix"):
            return prefix
        case ast.BinOp(left=left, right=right):
            return [a + b for a in _pattern(left, prefix) for b in _pattern(right, prefix)]
        case ast.JoinedStr(values=values):
            found = [""]
            for each in values:
                inner = each.value if isinstance(each, ast.FormattedValue) else each
                found = [a + b for a in found for b in _pattern(inner, prefix)]
            return found
    return [r"\w+"]


RECIPES = {
    "An API key.": of_api_keys,
    "A metadata record.": of_records,
    "A setting.": of_topic_settings,
    "A placer.": of_placers,
    "A metric.": of_metrics,
}

if __name__ == "__main__":
    for find in RECIPES.values():
        for sentence in find():
            print(f"src/anabranch/{sentence}")
