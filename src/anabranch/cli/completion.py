"""`anabranch completion`: what a shell needs to complete verbs and options."""

from __future__ import annotations

import click

from anabranch.cli.cluster_command import json_option, print_json

SHELLS = ("bash", "zsh", "fish")


@click.command(epilog='Example: eval "$(anabranch completion bash)"')
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
def command(shell: str, as_json: bool) -> None:
    """Print a script for shell completion of commands and options."""
    from click.shell_completion import get_completion_class

    from anabranch.cli.main import main

    complete = get_completion_class(shell)
    assert complete is not None, "click supports the three shells of the choice"
    script = complete(main, {}, "anabranch", "_ANABRANCH_COMPLETE").source()
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
