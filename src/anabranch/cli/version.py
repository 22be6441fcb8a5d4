"""`anabranch version`: which version this is."""

from __future__ import annotations

import click

from anabranch import __version__
from anabranch.cli.cluster_command import json_option, tell


@click.command(epilog="Example: anabranch version")
@json_option
def command(as_json: bool) -> None:
    """Print the version."""
    tell(f"anabranch {__version__}", as_json=as_json, version=__version__)
