"""What the verbs that talk to a cluster share: options, the event loop, one-line faults."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from difflib import get_close_matches
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from anabranch.core.sentences import in_number

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.connection import ConnectionLost
    from anabranch.core.errors import ApiError

T = TypeVar("T")
V = TypeVar("V", bound=Callable[..., Any])
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TRACEBACK_VARIABLE = "ANABRANCH_TRACEBACK"
DEFAULT_TIMEOUT_SECONDS = 30.0
MOST_INT16 = (1 << 15) - 1
MOST_INT32 = (1 << 31) - 1
MOST_INT64 = (1 << 63) - 1
"""What a field of a request can hold."""
UNITS_MS = {
    "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
    "w": 604_800_000,
}  # fmt: skip
"""Units of durations, in milliseconds."""
DURATION = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(UNITS_MS)})")
SECURITY = "anabranch.security"
"""Under which name click's context keeps what --command-config says."""
SILENCE_SECONDS = 4.0
"""A verb that waits says so each time this is over, and first after half of it: five seconds of
silence look like a fault."""
WATCH_SECONDS = 2.0
CLEAR = "\033[H\033[2J"
WHOLE_SENTENCE = 1000
"""More letters than a sentence has."""

RIGHTS = "`anabranch acls add` gives rights; --command-config FILE says who you are."
REMEDIES = {
    "UNKNOWN_TOPIC_OR_PARTITION": "`anabranch topics describe` shows what there is.",
    "TRANSACTIONAL_ID_NOT_FOUND": "`anabranch transactions list` shows those that there are.",
    "GROUP_ID_NOT_FOUND": "`anabranch groups list` shows those that there are.",
    "LEADER_NOT_AVAILABLE": "`anabranch cluster status` names the brokers that must be back.",
    "OFFSET_OUT_OF_RANGE": "The first record is at `--offset earliest`.",
    "TOPIC_ALREADY_EXISTS": "With --if-not-exists it is kept as it is.",
    "INVALID_REPLICATION_FACTOR": "`anabranch cluster brokers` shows the brokers.",
    "INVALID_PARTITIONS": "Give more than there are: partitions are never taken away.",
    "INVALID_REPLICA_ASSIGNMENT": "`anabranch cluster brokers` shows the brokers; each partition "
    "needs as many of them as the others.",
    "INVALID_UPDATE_VERSION": "`anabranch cluster features` shows what all nodes support.",
    "NO_REASSIGNMENT_IN_PROGRESS": "`anabranch apply FILE` carries out a plan.",
    "SECURITY_DISABLED": "Set authorizer.class.name in the properties of every node.",
    "DELEGATION_TOKEN_AUTH_DISABLED": "Set delegation.token.secret.key in the properties of every "
    "node.",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "Log in with SASL and not with a token: "
    "--command-config FILE says how.",
    "DELEGATION_TOKEN_NOT_FOUND": "`anabranch tokens list` shows those that you may see.",
    "RESOURCE_NOT_FOUND": "`anabranch users list` shows those that there are.",
    "NON_EMPTY_GROUP": "Stop its members first: `anabranch groups describe --members` shows them.",
    "TOPIC_AUTHORIZATION_FAILED": RIGHTS,
    "GROUP_AUTHORIZATION_FAILED": RIGHTS,
    "CLUSTER_AUTHORIZATION_FAILED": RIGHTS,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": RIGHTS,
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": RIGHTS,
}
"""What helps, by the name of an error code; for sentences that do not say it themselves."""
UNKNOWN_SETTING = re.compile(r"Unknown topic config name: (\S+)")
"""Kafka's words, as tools of Kafka's look for them."""
NO_TIME = re.compile(r".* for configuration \S+\.ms: Not a number of type \w+")
UNITS_HELP = "Write milliseconds, or a number with a unit: ms, s, m, h, d or w."
ALL_SETTINGS = (
    "`anabranch configs describe --entity-type topics --entity-name NAME --all` lists them."
)


click.IntRange.name = "integer"
"""As errors name it: `'x' is not a valid integer`, not click's `integer range`."""


class Seconds(click.FloatRange):
    """A time that ends, with or without a unit: click's own range takes `nan`, which no time ever
    exceeds."""

    name = "number of seconds"
    unit_ms = 1000

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> float:
        """The number, such as 90 of `90`, `90s` and `1.5m`; anything else is a usage error."""
        if isinstance(value, str) and (given := DURATION.fullmatch(value)):
            value = float(Fraction(given[1]) * UNITS_MS[given[2]] / self.unit_ms)
        found = float(super().convert(value, parameter, context))
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a {self.name}.", parameter, context)
        return found


class Minutes(Seconds):
    """The same in minutes."""

    name = "number of minutes"
    unit_ms = 60_000


class Milliseconds(click.IntRange):
    """Whole milliseconds, or a time with a unit."""

    name = "number of milliseconds"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> int:
        """The number, such as 60000 of `60000` and `1m`; anything else is a usage error."""
        if isinstance(value, str):
            value = in_milliseconds(".ms", value)
        found: int = super().convert(value, parameter, context)
        return found


address_option = click.option(
    "--bootstrap-server", "bootstrap", default=DEFAULT_BOOTSTRAP, show_default=True,
    metavar="HOST:PORT", envvar="ANABRANCH_BOOTSTRAP_SERVER", show_envvar=True,
    help="Brokers to connect to first, separated by commas.",
)  # fmt: skip


def _keep_security(context: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
    """Read the file, and keep what `ask` connects with. Raises BadParameter."""
    if path is None:
        return
    import javaproperties

    from anabranch.client.security import security_of
    from anabranch.core.errors import ClientFault

    try:
        with path.open(encoding="utf-8") as file:
            security = security_of(javaproperties.load(file))
            security.context()
            context.meta[SECURITY] = security
    except OSError as fault:
        raise click.BadParameter(f"{path}: {fault.strerror}.") from None
    except (UnicodeDecodeError, javaproperties.InvalidUEscapeError):
        raise click.BadParameter(f"{path} is no properties file in UTF-8.") from None
    except ClientFault as fault:
        raise click.BadParameter(f"{path}: {fault.message}") from None


command_config_option = click.option(
    "--command-config", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    envvar="ANABRANCH_COMMAND_CONFIG", show_envvar=True, expose_value=False,
    callback=_keep_security,
    help="Kafka client properties of the connection: security.protocol, sasl.* and ssl.*.",
)  # fmt: skip


def bootstrap_option(verb: V) -> V:
    """Where the cluster is, and how a connection to it is secured."""
    return address_option(command_config_option(verb))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
force_option = click.option(
    "--force", is_flag=True, help="Restore without looking for running nodes: all are stopped."
)
timeout_option = click.option(
    "--timeout", "timeout_seconds", type=Seconds(0, min_open=True),
    default=DEFAULT_TIMEOUT_SECONDS, show_default=True, metavar="SECONDS",
    help="Give up after this time.",
)  # fmt: skip


def watch_option(verb: V) -> V:
    """`--watch`: do it again and again until Ctrl-C; on a terminal each time from its top."""

    @wraps(verb)
    def watching(*args: Any, watch_seconds: float | None, **named: Any) -> Any:
        if watch_seconds is None:
            return verb(*args, **named)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                if sys.stdout.isatty():
                    click.echo(CLEAR, nl=False)
                try:
                    verb(*args, **named)
                except click.UsageError:
                    raise
                except click.ClickException as fault:
                    escaped(fault).show()
                except click.exceptions.Exit:
                    pass
                time.sleep(watch_seconds)

    option = click.option(
        "--watch", "watch_seconds", type=Seconds(0.1), is_flag=False, flag_value=WATCH_SECONDS,
        metavar="[SECONDS]", help="Show it again every 2 seconds, or as often as given, until "
        "Ctrl-C.",
    )  # fmt: skip
    return cast(V, option(watching))


def say_unseen(what: str) -> None:
    """What could not be looked at, for people, beside the output."""
    click.echo(f"not checked: {what}", err=True)


class ExampleFormatter(click.HelpFormatter):
    """Help whose examples can be copied: they break before an option only, with a backslash."""

    def write_text(self, text: str) -> None:
        """A paragraph, or the example at the end."""
        if not text.startswith("Example: "):
            super().write_text(text)
            return
        indent, room = " " * self.current_indent, self.width - self.current_indent - 2
        first, *others = text.split(" --")
        lines = [first]
        for option in others:
            if len(lines[-1]) + len(" --") + len(option) <= room:
                lines[-1] += f" --{option}"
            else:
                lines.append(f"    --{option}")
        self.write(" \\\n".join(indent + line for line in lines) + "\n")


class HelpContext(click.Context):
    """What a verb runs in."""

    formatter_class = ExampleFormatter


class SuggestingGroup(click.Group):
    """A group that names the verbs that an unknown one resembles."""

    def resolve_command(
        self, context: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that the first word names. Raises UsageError."""
        try:
            name, verb, others = super().resolve_command(context, words)
            if verb is not None:
                verb.context_class = HelpContext
            return name, verb, others
        except click.UsageError as fault:
            near = get_close_matches(words[0], self.list_commands(context))
            if not near:
                raise
            meant = " or ".join(map(repr, near))
            raise click.UsageError(f"{fault.message} Did you mean {meant}?", context) from None


class VerbGroup(SuggestingGroup):
    """Verbs of a verb; its help lists each with its whole first sentence, wrapped and not cut."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs."""
        found = ((name, self.get_command(context, name)) for name in self.list_commands(context))
        rows = [(name, verb.get_short_help_str(WHOLE_SENTENCE)) for name, verb in found if verb]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def ask(
    bootstrap: str,
    work: Callable[[Cluster], Awaitable[T]],
    *,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    tells_itself: bool = False,
    at_controllers: bool = False,
) -> T:
    """Run `work` with a cluster's client; a refusal or a lost connection becomes one line.

    `at_controllers`: `bootstrap` names listeners of controllers (KIP-919).

    What it waits for is told on standard error: for work that `tells_itself` how far it is, or that
    waits for records, only until the first broker has answered.
    """
    from anabranch.client.cluster import Cluster
    from anabranch.client.connection import ConnectionLost
    from anabranch.client.security import PLAINTEXT
    from anabranch.core.errors import ApiError

    context = click.get_current_context(silent=True)
    security = PLAINTEXT if context is None else context.meta.get(SECURITY, PLAINTEXT)

    async def run() -> T:
        async with (
            waiting_told(bootstrap) as answered,
            Cluster(
                bootstrap,
                security=security,
                deadline_seconds=timeout_seconds,
                at_controllers=at_controllers,
            ) as cluster,
        ):
            if tells_itself:
                answered()
            return await work(cluster)

    try:
        return asyncio.run(run())
    except ConnectionLost as fault:
        raise lost(fault) from None
    except ApiError as fault:
        raise refused(fault) from None


def lost(fault: ConnectionLost, other: str = "name another with --bootstrap-server") -> Refused:
    """What a command tells of a cluster that does not answer."""
    return Refused(
        str(fault) if str(fault).endswith("?") else f"{fault}. Is the broker running?",
        code="CONNECTION_LOST",
        remedy=f"Start one with `anabranch up`, or {other}.",
    )


def refused(fault: ApiError) -> Refused:
    """What a command tells of a refusal."""
    name = fault.code.name
    return Refused(f"{in_number(fault.message)} ({name})", code=name, remedy=_remedy(fault))


def _remedy(fault: ApiError) -> str:
    """What helps against a refusal; nothing where its sentence says so itself."""
    unknown = UNKNOWN_SETTING.fullmatch(fault.message)
    if unknown is not None:
        from anabranch.core.settings.tables.topic import TOPIC

        near = get_close_matches(unknown[1], [each.name for each in TOPIC], n=1)
        return f"Did you mean {near[0]}?" if near else ALL_SETTINGS
    if NO_TIME.fullmatch(fault.message):
        return UNITS_HELP
    return "" if "`anabranch" in fault.message else REMEDIES.get(fault.code.name, "")


@contextlib.asynccontextmanager
async def waiting_told(what: str) -> AsyncIterator[Callable[[], object]]:
    """Say every few seconds what is waited for; what is given ends that."""

    async def tell() -> None:
        begin, silence = time.monotonic(), SILENCE_SECONDS / 2
        while True:
            await asyncio.sleep(silence)
            silence = SILENCE_SECONDS
            waited = time.monotonic() - begin
            click.echo(f"Waiting for {what}: {waited:.0f} s so far.", err=True)

    telling = asyncio.create_task(tell())
    try:
        yield telling.cancel
    finally:
        telling.cancel()


class Refused(click.ClickException):
    """A fault with a code for programs and, where one is known, what to do about it."""

    def __init__(self, message: str, *, code: str, remedy: str = "") -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.said = message
        self.code = code
        self.remedy = remedy


def error_json(fault: click.ClickException) -> dict[str, dict[str, str | None]]:
    """What `--json` prints of a fault: {"error": {"code", "message", "remedy"}}."""
    if isinstance(fault, Refused):
        told = (fault.code, fault.said, fault.remedy or None)
    else:
        is_usage = isinstance(fault, click.UsageError)
        told = ("USAGE" if is_usage else "FAILED", fault.format_message(), None)
    return {"error": dict(zip(("code", "message", "remedy"), told, strict=True))}


def print_failure(why: str) -> None:
    """What went wrong with a node, as `--json` prints a fault."""
    print_json(error_json(click.ClickException(why)))


def tell(sentence: str, *, as_json: bool, **fields: object) -> None:
    """What was done: a sentence for people, or its fields as JSON."""
    if as_json:
        print_json(fields)
    else:
        click.echo(sentence)


def end_incomplete(sentences: list[str]) -> None:
    """Say on standard error what is missing in the list, if anything, and exit with 1."""
    for each in sentences:
        click.echo(each, err=True)
    if sentences:
        raise click.exceptions.Exit(1)


def print_json(value: Any) -> None:
    """One document of JSON on standard output."""
    click.echo(json.dumps(value, ensure_ascii=False))


def printable(text: str, *, keep: str = "") -> str:
    """Text of a client's for a terminal: characters that control one, or hide or turn what stands
    beside them, are escaped, but for those to keep."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )


def escaped(fault: click.ClickException) -> click.ClickException:
    """The fault as a terminal may show it."""
    said = printable(fault.message, keep="\n")
    if said == fault.message:
        return fault
    if isinstance(fault, click.UsageError):
        return click.UsageError(said, fault.ctx)
    return click.ClickException(said)


class Alarming(str):
    """A cell that a terminal shows in red."""

    __slots__ = ()


def alarming(cell: object, *, when: bool) -> object:
    """The cell of a table, red on a terminal when something is wrong."""
    return Alarming(cell) if when else cell


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table for people; without borders where nobody looks, so that it can be cut and sorted.

    One that a terminal is too narrow for is turned: no word of it is ever cut.
    """
    styles = [["red" if isinstance(each, Alarming) else "" for each in row] for row in rows]
    texts = [[printable(str(each)) for each in row] for row in rows]
    if sys.stdout is None or not sys.stdout.isatty():
        for line in aligned([list(headings), *texts]):
            click.echo(line)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*headings, header_style="bold")
    for row, of_row in zip(texts, styles, strict=True):
        table.add_row(*map(Text, row, of_row))
    console = Console()
    with console.capture() as drawn:
        console.print(table)
    if _holds_every_word(drawn.get(), headings, texts):
        click.echo(drawn.get(), nl=False)
        return
    if not console.no_color:
        texts = [
            [Alarming(text) if style else text for text, style in zip(*row, strict=True)]
            for row in zip(texts, styles, strict=True)
        ]
    for line in turned(headings, texts, console.width):
        click.echo(line)


def _holds_every_word(drawn: str, headings: Sequence[str], texts: Sequence[Sequence[str]]) -> bool:
    """Whether nothing was cut; around a heading there may be the terminal's marks."""
    drawn = click.unstyle(drawn)
    words = {word for row in texts for cell in row for word in cell.split()}
    heads = (word for heading in headings for word in heading.split())
    return words <= set(drawn.split()) and all(word in drawn for word in heads)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines, each column as wide as its longest text; alarming cells are red."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(_padded, row, widths)) for row in rows)
    return [line.rstrip() for line in lines]


def _padded(cell: str, width: int) -> str:
    shown = click.style(cell, fg="red") if isinstance(cell, Alarming) else cell
    return shown + " " * (width - len(cell))


def turned(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """A line a heading and a column a row, as many side by side as fit; then the next of them."""
    block: list[Sequence[str]] = [headings]
    for row in rows:
        wider = aligned(list(zip(*block, row, strict=True)))
        if len(block) > 1 and max(len(click.unstyle(line)) for line in wider) > width:
            yield from (*aligned(list(zip(*block, strict=True))), "")
            block = [headings]
        block.append(row)
    yield from aligned(list(zip(*block, strict=True)))


def text_of(path: Path) -> str:
    """What a file says, without the mark that some editors put before UTF-8; one that is no text,
    or cannot be read, is told so."""
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        why = "it is not text in UTF-8"
    except OSError as fault:
        why = fault.strerror or str(fault)
    raise click.ClickException(f"{path} cannot be read: {why}. Name another file.")


def setting_pairs(texts: Sequence[str], what: str) -> dict[str, str]:
    """As `pairs`, for settings: a duration with its unit, such as 1h, is told in milliseconds where
    a setting takes those."""
    return {key: in_milliseconds(key, value) for key, value in pairs(texts, what).items()}


def in_milliseconds(key: str, value: str) -> str:
    """The value of a setting; a duration with a unit as milliseconds, where it takes those."""
    found = DURATION.fullmatch(value) if key.endswith(".ms") else None
    if found is None:
        return value
    exact = Fraction(found[1]) * UNITS_MS[found[2]]
    return str(exact) if exact.denominator == 1 else value


def pairs(texts: Sequence[str], what: str, *, verbatim: bool = False) -> dict[str, str]:
    """`key=value` texts as a mapping; a text without `=` is a usage error that names it. Spaces
    around a value are dropped unless it is to be taken `verbatim`."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{what} {text!r} is not KEY=VALUE.")
        found[key.strip()] = value if verbatim else value.strip()
    return found
