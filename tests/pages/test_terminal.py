"""The terminals in which pages are tried."""

from __future__ import annotations

import signal

import pytest
from tests.pages.terminal import Terminal, apart


@pytest.mark.skipif(not apart(), reason="network namespaces (unshare, ip) are not allowed here")
@pytest.mark.parametrize("lines", [1, 5_000])
def test_a_command_ends_whatever_the_shell_itself_says(lines, tmp_path):
    """The shell tells of jobs that ended, at once with the end of a command."""
    with Terminal(tmp_path) as terminal:
        terminal.run(f"trap 'seq {lines} >&2' DEBUG")
        assert terminal.run("echo done").endswith("done\n")


@pytest.mark.skipif(not apart(), reason="network namespaces (unshare, ip) are not allowed here")
def test_ctrl_c_reaches_commands_also_where_the_test_ignores_it(tmp_path):
    """As it does in the background of a shell without jobs."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Terminal(tmp_path) as terminal:
            told = terminal.run("python -c 'import signal; print(signal.getsignal(2))'")
    finally:
        signal.signal(signal.SIGINT, before)
    assert "default_int_handler" in told
