"""Reading fields out of YAML so that every mistake is told with its line, its name and a remedy.

What: `Section` is a mapping of which every key must be known and taken once; `Item` is any value
with its line and its full name. Why: people write these files by hand, and a mistake that is told
as "line 12, topics.orders.replication: …" is mended at once. Rule kept: nothing that was written
is ignored in silence. Not here: what the fields mean (`rehearsal_file.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TypeVar

import yaml

T = TypeVar("T")

FILE_SIZE_MOST = 256 * 1024
"""A rehearsal is a page or two; a larger file is not one."""

ITEMS_MOST = 10_000
"""Longest list that is read: more partitions than a rehearsal can run in a minute."""


class PlanError(Exception):
    """A file that is no rehearsal: where, what is wrong, and what to do."""

    def __init__(self, source: str, line: int, name: str, problem: str) -> None:
        self.source = source
        self.line = line
        self.name = name
        self.problem = problem
        where = f"{source}, line {line}" if line else source
        super().__init__(f"{where}{', ' + name if name else ''}: {problem}")


class Item:
    """One value of a file."""

    __slots__ = ("line", "name", "node", "source")

    def __init__(
        self, node: yaml.Node, name: str, source: str, key: yaml.Node | None = None
    ) -> None:
        self.node = node
        self.name = name
        self.source = source
        is_scalar = isinstance(node, yaml.ScalarNode)
        first = node if key is None or is_scalar else key
        self.line = int(first.start_mark.line) + 1
        """Where it stands, counted from 1; of a list or mapping, its name's line."""

    def fault(self, problem: str) -> PlanError:
        """What is wrong with this value."""
        return PlanError(self.source, self.line, self.name, problem)

    @property
    def text(self) -> str:
        """A scalar, as it is written."""
        if not isinstance(self.node, yaml.ScalarNode) or not self.node.value.strip():
            raise self.fault("Expected one value here, and found none, a list or a mapping.")
        return str(self.node.value).strip()

    def whole(self, least: int, most: int) -> int:
        """A whole number between two bounds."""
        text = self.text
        if not text.isascii() or not text.isdigit() or not least <= int(text[:18]) <= most:
            raise self.fault(f"Expected a whole number from {least:,} to {most:,}, not {text!r}.")
        return int(text)

    def flag(self) -> bool:
        """True or false."""
        text = self.text.lower()
        if text not in ("true", "false"):
            raise self.fault(f"Expected true or false, not {text!r}.")
        return text == "true"

    def one_of(self, words: Iterable[str]) -> str:
        """One of some words."""
        text, known = self.text, sorted(words)
        if text not in known:
            raise self.fault(f"{text!r} is none of {', '.join(known)}.{nearest(text, known)}")
        return text

    def quantity(self, parse: Callable[[str], T | None], example: str) -> T:
        """A time, size or rate; `example` is one that would do."""
        value = parse(self.text)
        if value is None:
            raise self.fault(f"{self.text!r} is not such as {example}. Write it like that.")
        return value

    def items(self) -> list[Item]:
        """The elements of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.fault("Expected a list here: [a, b], or a line with a dash for each.")
        if len(self.node.value) > ITEMS_MOST:
            raise self.fault(f"The list has more than {ITEMS_MOST:,} elements. Make it shorter.")
        return [
            Item(node, f"{self.name}[{index}]", self.source)
            for index, node in enumerate(self.node.value)
        ]

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    def section(self) -> Section:
        """A mapping."""
        return Section(self)


class Section:
    """A mapping of which each key is taken by name; `end` refuses the keys that are left."""

    def __init__(self, item: Item) -> None:
        if not isinstance(item.node, yaml.MappingNode):
            raise item.fault("Expected a mapping here: lines of `name: value`.")
        self.item = item
        self._values: dict[str, Item] = {}
        self._asked: list[str] = []
        for key, value in item.node.value:
            inner = Item(key, item.name, item.source)
            name = inner.text
            full = f"{item.name}.{name}" if item.name else name
            if name in self._values:
                raise PlanError(item.source, inner.line, full, "It is written twice. Keep one.")
            self._values[name] = Item(value, full, item.source, key)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    @property
    def names(self) -> list[str]:
        """The keys, in the order of the file."""
        return list(self._values)

    def take(self, name: str) -> Item | None:
        """The value of a key that may be missing."""
        self._asked.append(name)
        return self._values.get(name)

    def need(self, name: str) -> Item:
        """The value of a key that must be there."""
        found = self.take(name)
        if found is None:
            raise self.item.fault(f"`{name}` is missing. Add it here.")
        return found

    def text(self, name: str, default: str = "") -> str:
        """A scalar, or the default."""
        found = self.take(name)
        return default if found is None else found.text

    def whole(self, name: str, default: int, *, least: int, most: int) -> int:
        """A whole number, or the default."""
        found = self.take(name)
        return default if found is None else found.whole(least, most)

    def quantity(self, name: str, default: T, parse: Callable[[str], T | None], example: str) -> T:
        """A time, size or rate, or the default."""
        found = self.take(name)
        return default if found is None else found.quantity(parse, example)

    def all(self) -> dict[str, Item]:
        """Every key and value, for a mapping whose names are the author's own."""
        self._asked += self._values
        return self._values

    def end(self) -> None:
        """Refuse the keys that no `take` named."""
        for name, item in self._values.items():
            if name not in self._asked:
                known = sorted(set(self._asked))
                raise item.fault(
                    f"`{name}` is not known here.{nearest(name, known)} "
                    f"Known are {', '.join(known)}."
                )


def nearest(word: str, known: Iterable[str]) -> str:
    """A sentence that offers the known word that is most like a mistaken one, if any is."""
    found = get_close_matches(word, list(known), n=1)
    return f" Did you mean `{found[0]}`?" if found else ""


def parse(text: str, source: str) -> Section:
    """The top of a file. Raises PlanError for what is no YAML, and for what is no mapping."""
    if len(text) > FILE_SIZE_MOST:
        raise PlanError(source, 0, "", f"A rehearsal is at most {FILE_SIZE_MOST // 1024} KiB long.")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        line = 0 if mark is None else int(mark.line) + 1
        problem = fault.problem or fault.context or "unclear"
        raise PlanError(
            source,
            line,
            "",
            f"It is not YAML: {problem}. Look at indents, colons and quotes there.",
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError) as fault:
        problem = "it is nested too deeply" if isinstance(fault, RecursionError) else str(fault)
        first = problem.splitlines()[0] if problem else "unclear"
        raise PlanError(
            source, 0, "", f"It is not YAML: {first}. Write it as plain text."
        ) from None
    if node is None:
        raise PlanError(source, 0, "", "It is empty. See `anabranch rehearse --list` for examples.")
    return Section(Item(node, "", source))
