"""`--replica-placement`: a topic's placement constraints as text or in a file.

What: the option, spelled as Confluent's tools spell it, and what it reads. Rule kept: what cannot
be read is refused here, with file and place, before a node is asked. Source: decision 0029. Not
here: the two forms (`core/placement/constraints.py`).
"""

from __future__ import annotations

from pathlib import Path

import click

placement_option = click.option(
    "--replica-placement", "placement", metavar="TEXT|FILE",
    help="Replicas and observers in each rack, such as replicas=east:2,observers=west:1; or a "
        "file with this text or with Confluent's JSON.",
)  # fmt: skip


def placement_of(given: str) -> str:
    """The constraints as the setting takes them."""
    from anabranch.core.placement.constraints import ConstraintsFault, read_constraints

    text, where = given, "--replica-placement"
    if not given.lstrip().startswith("{") and "=" not in given:
        where = given
        try:
            text = Path(given).read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as fault:
            why = fault.strerror if isinstance(fault, OSError) else "it is not text"
            raise click.UsageError(
                f"--replica-placement {given!r} is neither text such as replicas=east:2 nor a file "
                f"that can be read ({why})."
            ) from None
    try:
        if read_constraints(text) is None:
            raise ConstraintsFault("it is empty")
    except ConstraintsFault as fault:
        raise click.ClickException(f"{where}: {fault}") from None
    return text.strip()
