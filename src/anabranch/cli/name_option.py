"""Options that name what a verb is about, and may also stand without their `--name`.

What: `topics describe --topic t` and `topics describe t` mean the same, and so do `unregister 3`
and `unregister --broker 3`. Rules kept: help shows one form of a verb; what is named in both forms
is refused. Not here: what such a name has to look like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
from click.core import ParameterSource

V = TypeVar("V", bound=Callable[..., Any])
PLACED = "placed_names"
"""Under which name the parser keeps the words that stand without an option."""


class NamingOption(click.Option):
    """An option whose value may stand alone; one that help hides is told as what stands alone."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        if self.hidden:
            self.param_type_name = "argument"

    def get_error_hint(self, context: click.Context | None) -> str:
        """How errors name it."""
        return repr(self.metavar) if self.hidden else super().get_error_hint(context)

    def consume_value(
        self, context: click.Context, options: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """The value of the option, or the words that stand alone. Raises UsageError for both."""
        value, source = super().consume_value(context, options)
        words = options.get(PLACED)
        if not isinstance(words, (list, tuple)) or not words:
            return value, source
        if source is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{words[0]!r} stands beside {self.opts[0]}: name it once.", context
            )
        if self.multiple:
            return list(words), ParameterSource.COMMANDLINE
        if len(words) > 1:
            raise click.UsageError(f"Got unexpected extra argument ({words[1]}).", context)
        return words[0], ParameterSource.COMMANDLINE


class PlacedNames(click.Argument):
    """The words without an option; help shows them where it does not show the option."""

    def __init__(self, *args: Any, shown_as: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._shown_as = shown_as

    def get_usage_pieces(self, _context: click.Context) -> list[str]:
        """What the first line of help says of them."""
        return [self._shown_as] if self._shown_as else []


def naming_option(
    flag: str, *names: str, stands_alone: bool = False, **attributes: Any
) -> Callable[[V], V]:
    """`click.option` for what a verb is about; `stands_alone` makes help show the word alone."""
    attributes.setdefault("cls", NamingOption)
    completes = attributes.get("shell_complete")

    def decorate(verb: V) -> V:
        metavar = str(attributes.get("metavar", "NAME"))
        argument = click.argument(
            PLACED, cls=PlacedNames, nargs=-1, expose_value=False, shell_complete=completes,
            shown_as=metavar if stands_alone else "",
        )  # fmt: skip
        return argument(click.option(flag, *names, hidden=stands_alone, **attributes)(verb))

    return decorate
