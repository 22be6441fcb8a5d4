"""A reader who types what a page says, in its order, gets what it says: each command is run."""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.pages.page import ROOT, Step, Unreadable, pages, steps
from tests.pages.terminal import Failed, Terminal, apart, serves

QUICK = {"docs/operate/retention.md"}
"""What `make test` runs."""
REST = {
    "docs/concepts/groups.md",
    "docs/concepts/transactions.md",
    "docs/index.md",
    "docs/operate/diskless-storage.md",
    "docs/operate/rehearse.md",
    "docs/operate/replace-broker.md",
    "docs/start/quick-start.md",
}
"""What `make test-rest` runs; `make pages` runs all."""
SECONDS = 1800


def name(page: Path) -> str:
    """A page as `docs/start/quick-start.md`."""
    return str(page.relative_to(ROOT))


def commands(page: Path) -> list[Step]:
    """Commands of a page that readers see or that prepare for them."""
    return [each for each in steps(page.read_text()) if each.command or each.file]


def session(page: Path):
    """The test of a page that has something to run."""
    marks = [pytest.mark.timeout(SECONDS)]
    if name(page) in REST:
        marks.append(pytest.mark.slow)
    elif name(page) not in QUICK:
        marks.append(pytest.mark.page)
    return pytest.param(page, id=name(page), marks=marks)


WITH_COMMANDS = [
    session(page)
    for page in pages()
    if any(each.command and not each.why_not for each in commands(page))
]


@pytest.fixture
def terminal(tmp_path):
    """A reader's session; without a network of its own, ports of the pages may be taken."""
    if not apart():
        pytest.skip("network namespaces (unshare, ip) are not allowed here")
    with Terminal(tmp_path) as session:
        yield session


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_a_page_does_what_it_says(page, terminal):
    for step in [*commands(page), Step(0, "^C")]:
        perform(terminal, page, step)


def perform(terminal: Terminal, page: Path, step: Step) -> None:
    """One step of a page; a failure names its line."""
    if step.why_not:
        return
    fault = ""
    try:
        if step.file:
            terminal.write(step.file, step.text)
        else:
            compare(step, terminal.run(step.typed, step.exit_code))
    except Failed as failed:
        fault = f"{name(page)}:{step.line}: {failed}"
    if fault:
        pytest.fail(fault, pytrace=False)


def shape(line: str) -> str:
    """A line without its figures and its columns' widths."""
    return re.sub(r"\d[\d,.]*", "0", " ".join(line.split()))


def is_printed(line: str, printed: set[str]) -> bool:
    """Whether a line of the page was printed; `…` in it is any text."""
    pattern = ".*".join(map(re.escape, shape(line).split("…")))
    return any(re.fullmatch(pattern, each) for each in printed)


def compare(step: Step, output: str) -> None:
    """Each line that the page shows was printed, whatever its figures are."""
    printed = {shape(line) for line in output.splitlines()}
    missing = [line for line in step.printed if line.strip() and not is_printed(line, printed)]
    if missing:
        raise Failed(f"the page shows lines that were not printed: {missing}\n{output}")


def test_each_command_is_run_or_marked_with_its_reason():
    counts = Counter()
    for page in pages():
        for step in commands(page):
            counts["marked" if step.why_not else "run"] += 1
            if step.why_not:
                print(f"{name(page)}:{step.line}: {step.command or step.file}: {step.why_not}")
    print(f"{counts['run']} commands and files are run, {counts['marked']} are marked")
    assert counts["run"] > counts["marked"]


@pytest.mark.parametrize(
    "text",
    [
        "```text\n$ anabranch up\n```",
        "```\n$ anabranch up\n```",
        "    $ anabranch up",
        "```bash\nanabranch up\n```",
        "<!-- not run -->\n```console\n$ anabranch up\n```",
        "<!-- run later -->",
    ],
)
def test_what_is_neither_run_nor_marked_is_refused(text):
    with pytest.raises(Unreadable):
        steps(text)


def test_a_mark_is_for_one_block_or_some_of_its_lines():
    text = '<!-- not run, lines with "ssh": no host -->\n```console\n$ ssh a\n$ ls \\\n    b\n```\n'
    first, second = steps(text)
    assert (first.why_not, second.why_not, second.command) == ("no host", "", "ls \\\nb")
    assert [each.why_not for each in steps(text + "```console\n$ ssh b\n```")][-1] == ""


def test_what_a_page_prepares_and_replaces():
    text = (
        '<!-- run first\n$ echo 1\n^C\n-->\n<!-- in place of "48": "$(echo 2)" -->\n'
        '```console\n$ kill 48\nended 48\n```\n\n```python title="a.py"\nprint()\n```\n'
    )
    first, stop, kill, file = steps(text)
    assert (first.command, stop.command, kill.typed) == ("echo 1", "^C", "kill $(echo 2)")
    assert (kill.printed, file.file, file.text) == (("ended 48",), "a.py", "print()\n")


def test_a_command_that_fails_or_prints_something_else_fails_the_page(terminal):
    with pytest.raises(Failed, match="exit code 3"):
        terminal.run("exit_with() { return 3; }; exit_with")
    assert terminal.run("export A=5; cd src; false", exit_code=1) == ""
    assert terminal.run("echo $A; basename $PWD").split() == ["5", "src"]
    with pytest.raises(Failed, match="not printed"):
        compare(Step(1, printed=("12 records",)), terminal.run("echo 12 rows"))
    compare(Step(1, printed=("12  records",)), terminal.run("echo 7 records"))


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ("anabranch up --brokers 3", True),
        (".venv/bin/anabranch serve --config a.properties   # until Ctrl-C", True),
        ("make up PORT=9092", True),
        ("anabranch cluster roll --dir data   # nodes of a running `anabranch up`", False),
        ("anabranch mirror run mm2.properties --validate-only", False),
        ("anabranch topics create up", False),
    ],
)
def test_what_is_a_server(command, is_one):
    assert serves(command) == is_one


HOLD = """
import sys, time
from pathlib import Path
from tests.pages.terminal import Terminal
with Terminal(Path(sys.argv[1])) as terminal:
    terminal.run("setsid flock held sleep 1000 &")
    terminal.run("while flock --nonblock held true; do sleep 0.1; done")
    print("held", flush=True)
    time.sleep(1000)
"""


@pytest.mark.skipif("--kill-child" not in apart(), reason="process namespaces are not allowed here")
def test_what_a_session_started_ends_when_the_test_is_killed(tmp_path):
    killed = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert killed.stdout.readline() == b"held\n"
    killed.kill()
    killed.wait()
    with (tmp_path / "held").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # waits for `sleep` to end
