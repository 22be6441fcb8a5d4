"""What a page asks its reader to do: files, commands in their order, and what is not run here and why.

A page is Markdown. Commands are lines that begin with `$ ` in a fenced block; the block's other
lines are what the commands print. Comments, which readers of the site do not see, stand before a
block and say how a test runs it:

    <!-- not run: REASON -->                     nothing of the next block
    <!-- not run, lines with "TEXT": REASON -->  its commands in which the text is
    <!-- in place of "TEXT": "OTHER" -->         an example of the page is what there is here
    <!-- exit code N, lines with "TEXT": WHY --> commands that the page shows failing
    <!-- file NAME -->                           the next block is this file
    <!-- run first                               what the page takes for granted; `^C` ends the
    $ COMMAND                                    servers that run
    -->

A block with `title="NAME"` is that file, too. Not here: who runs them (`terminal`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHELLS = {"console", "bash", "sh", "shell"}
FENCE = re.compile(r"^ *```(?P<language>\w*)(?P<rest>.*)$")
TITLE = re.compile(r'title="([^"/]+)"')
DIRECTIVE = re.compile(
    r"^(?P<what>not run|in place of|exit code \d+|file|run first)\b"
    r'(?:, lines with "(?P<lines>[^"]+)"| "(?P<old>[^"]+)")?:?\s*(?P<rest>.*)$',
    re.DOTALL,
)


class Unreadable(Exception):
    """A comment or a block that says nothing that is known here; the place is named."""


@dataclass(frozen=True)
class Step:
    """One thing to do at a line of the page: a command, a file to write, or `^C`."""

    line: int
    command: str = ""
    file: str = ""
    text: str = ""
    why_not: str = ""
    exit_code: int = 0
    printed: tuple[str, ...] = ()
    in_place_of: tuple[tuple[str, str], ...] = ()

    @property
    def typed(self) -> str:
        """The command as it is run here."""
        typed = self.command
        for old, new in self.in_place_of:
            typed = typed.replace(old, new)
        return typed


@dataclass
class _Comments:
    """The comments since the last block."""

    found: list[tuple[str, str, str]] = field(default_factory=list)

    def why_not(self, command: str) -> str:
        """Why a command of the block is not run; empty if it is."""
        marks = [each for each in self.found if each[0] == "not run"]
        return next((why for _what, text, why in marks if text in command), "")

    def exit_code(self, command: str) -> int:
        """The exit code that the page says."""
        codes = [each for each in self.found if each[0].startswith("exit code")]
        return next((int(what.split()[-1]) for what, text, _why in codes if text in command), 0)

    def in_place_of(self) -> tuple[tuple[str, str], ...]:
        """Texts of the page and what stands there here."""
        return tuple(
            (old, new.strip('"')) for what, old, new in self.found if what == "in place of"
        )

    def file(self, rest: str) -> str:
        """The name of the file that the block is."""
        named = next((name for what, _text, name in self.found if what == "file"), "")
        title = TITLE.search(rest)
        return named or (title.group(1) if title else "")


def pages() -> list[Path]:
    """Every page for users: a decision tells what was decided, and nothing to do."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if page.parent.name != "decisions"]


def steps(text: str) -> list[Step]:
    """What the page has its reader do, in its order."""
    lines = text.splitlines()
    return list(_steps(lines))


def _steps(lines: list[str]) -> Iterator[Step]:
    comments, at = _Comments(), 0
    while at < len(lines):
        if lines[at].lstrip().startswith("<!--"):
            end = next(here for here in range(at, len(lines)) if "-->" in lines[here])
            yield from _comment(comments, lines, at, end)
        elif fence := FENCE.match(lines[at]):
            end = _end(lines, at)
            yield from _block(comments, fence, lines[at + 1 : end], at + 2)
            comments = _Comments()
        else:
            end = at
            if re.match(r" *\$ \w", lines[at]):
                raise Unreadable(f"line {at + 1}: a command outside of a block: {lines[at]}")
        at = end + 1


def _end(lines: list[str], at: int) -> int:
    return next(here for here in range(at + 1, len(lines)) if lines[here].strip() == "```")


def _comment(comments: _Comments, lines: list[str], at: int, end: int) -> Iterator[Step]:
    text = "\n".join(lines[at : end + 1]).strip().removeprefix("<!--").removesuffix("-->").strip()
    found = DIRECTIVE.match(text)
    if found is None:
        if re.match(r"(not run|run |in place|exit)", text):
            raise Unreadable(f"line {at + 1}: unknown comment: {text}")
        return
    if found["what"] == "run first":
        yield from _commands(_Comments(), lines[at + 1 : end], at + 2)
        return
    rest = found["rest"].strip()
    if found["what"] in ("not run", "in place of") and not rest:
        raise Unreadable(f"line {at + 1}: without a reason: {text}")
    comments.found.append((found["what"], found["lines"] or found["old"] or "", rest))


def _block(
    comments: _Comments, fence: re.Match[str], body: list[str], first: int
) -> Iterator[Step]:
    if fence["language"] in SHELLS:
        yield from _commands(comments, body, first)
    elif any(re.match(r" *\$ \w", line) for line in body):
        raise Unreadable(f"line {first}: commands in a block of {fence['language'] or 'no'} kind")
    elif file := comments.file(fence["rest"]):
        indent = min((len(line) - len(line.lstrip()) for line in body if line.strip()), default=0)
        text = "\n".join(line[indent:] for line in body) + "\n"
        for old, new in comments.in_place_of():
            text = text.replace(old, new)
        yield Step(first, file=file, text=text, why_not=comments.why_not(file))


def _commands(comments: _Comments, body: list[str], first: int) -> Iterator[Step]:
    """The commands of a block, each with what it is said to print."""
    at = 0
    if body and not body[0].lstrip().startswith(("$ ", "^C")):
        raise Unreadable(f"line {first}: a block of commands begins with `$ `")
    while at < len(body):
        line, said = first + at, [body[at].strip()]
        while said[-1].endswith("\\"):
            at += 1
            said.append(body[at].strip())
        at += 1
        printed = []
        while at < len(body) and not body[at].lstrip().startswith(("$ ", "^C")):
            printed.append(body[at].strip())
            at += 1
        command = "\n".join(said).removeprefix("$ ")
        yield Step(
            line, command, why_not=comments.why_not(command), printed=tuple(printed),
            exit_code=comments.exit_code(command), in_place_of=comments.in_place_of(),
        )  # fmt: skip
