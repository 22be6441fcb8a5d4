"""`anabranch version`: which version this is."""

from __future__ import annotations

import click

from anabranch import __version__


@click.command(epilog="Example: anabranch version")
def command() -> None:
    """Print the version."""
    click.echo(f"anabranch {__version__}")
