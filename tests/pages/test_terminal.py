"""The terminals in which pages are tried."""

from __future__ import annotations

import pytest
from tests.pages.terminal import Terminal, apart


@pytest.mark.skipif(not apart(), reason="network namespaces (unshare, ip) are not allowed here")
@pytest.mark.parametrize("lines", [1, 5_000])
def test_a_command_ends_whatever_the_shell_itself_says(lines, tmp_path):
    """The shell tells of jobs that ended, at once with the end of a command."""
    with Terminal(tmp_path) as terminal:
        terminal.run(f"trap 'seq {lines} >&2' DEBUG")
        assert terminal.run("echo done").endswith("done\n")
