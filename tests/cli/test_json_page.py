"""The page on JSON output shows what the verbs print: names and types of every field.

`REWRITE_GOLDEN=1` writes the page's examples anew; read the difference before you keep it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "json.md"
MARK = "<!-- examples -->\n"
BLOCK = re.compile(r"^### `anabranch (.+?)`\n+```json\n(.*?)```", re.MULTILINE | re.DOTALL)

EXAMPLES = (
    "topics delete --topic nowhere --json",
    "version --json",
    "topics create --topic made --partitions 1 --json",
    "topics list --json",
    "topics describe --topic orders --json",
    "topics delete --topic made --json",
    "configs describe --entity-type topics --entity-name orders --json",
    "produce --topic orders --json",
    "consume --topic orders --from-beginning --max-messages 1 --json",
    "groups list --json",
    "groups describe --group billing --json",
    "transactions list --json",
    "partitions elect-leaders --topic orders --partition 0 --json",
    "explain orders-0 --json",
    "plan drain --broker 4 --json",
    "plan status --json",
    "cluster id --json",
    "cluster brokers --json",
    "cluster describe --json",
    "cluster status --json",
    "cluster features --json",
    "cluster roll --dry-run --json",
)
"""What the page has, in its order; each is run after those before it."""


def shape(value):
    """Names and types: an object field by field, a list by its first element."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else (
        type(value).__name__
    )  # fmt: skip


def differences(shown, printed, at=""):
    """Where two shapes differ; null and an empty list are like anything."""
    if "NoneType" in (shown, printed) or [] in (shown, printed):
        return []
    if isinstance(shown, dict) and isinstance(printed, dict):
        if MAPS.search(at):
            return differences(next(iter(shown.values()), []), next(iter(printed.values()), []))
        names = [f"{at}.{each}" for each in sorted(shown.keys() ^ printed.keys())]
        both = [each for each in shown if each in printed]
        return names + [
            d for each in both for d in differences(shown[each], printed[each], f"{at}.{each}")
        ]
    if isinstance(shown, list) and isinstance(printed, list):
        return differences(shown[0], printed[0], at + "[]")
    return [] if shown == printed else [f"{at}: {shown} or {printed}"]


MAPS = re.compile(r"\.(configs|settings|changed|refused)$")
"""Objects whose names are not the schema's: settings by their name."""


@pytest.fixture(scope="module")
def printed(cluster, against):
    """What each example prints on a cluster with a topic, a group and records."""
    running = cluster._cluster
    verb = against(cluster.bootstrap_servers, lambda: [each._life.node for each in running.serving])
    cluster.create_topic("orders", partitions=2, config={"retention.ms": 60_000})
    verb("produce", "--topic", "orders", input="a\nb\n")
    group = ("consume", "--topic", "orders", "--group", "billing", "--from-beginning")
    assert verb(*group, "--max-messages", "2").exit_code == 0
    texts = {}
    for example in EXAMPLES:
        done = verb(*shlex.split(example), input="c\n")
        assert "Traceback" not in done.output
        texts[example] = done.stdout
    return texts


def names(value, at=""):
    """Every name of a field in a value, with its place; numbers are levels and ids."""
    if isinstance(value, list):
        yield from (name for each in value for name in names(each, f"{at}[]"))
    elif isinstance(value, dict):
        for name, each in value.items():
            if not (MAPS.search(at) or name.isdigit()):
                yield f"{at}.{name}"
            yield from names(each, f"{at}.{name}")


ALSO = (
    "topics describe --json", "topics describe --under-replicated-partitions --json",
    "configs describe --broker 1 --json", "groups describe --json",
    "groups describe billing --members --json",
    "groups reset-offsets --group billing --topic orders --to-earliest --json",
    "transactions find-hanging --broker-id 1 --json", "partitions reassign --list --json",
    "plan add --broker 4 --json", "plan racks --json", "cluster upgrade --dry-run --json",
    "acls list --json", "quotas list --json", "users list --json", "log verify {folder} --json",
    "log dump {folder}/orders-0/00000000000000000000.log --json",
    "metadata dump {folder} --json", "rehearse two-data-centres --json", "groups describe absent --json",
)  # fmt: skip
"""More verbs whose names are looked at."""


def test_names_in_json_are_words_with_underscores(printed, cluster, against):
    folder = re.search(r'"(/[^"]+/broker-\d+)', "".join(printed.values()))[1]
    verb = against(cluster.bootstrap_servers)
    texts = dict(printed)
    for words in ALSO:
        said = verb(*shlex.split(words.format(folder=folder)))
        assert said.exit_code in (0, 1), (words, said.output)
        texts[words] = said.stdout
    wrong = set()
    for words, text in texts.items():
        for line in [text] if text.count("\n") == 1 else text.splitlines():
            wrong |= {(words, each) for each in names(json.loads(line)) if not WORDS.search(each)}
    assert wrong == set()


WORDS = re.compile(r"\.[a-z][a-z0-9]*(_[a-z0-9]+)*$")


def short(value):
    """One element of each list of objects, and no folder of this machine."""
    if isinstance(value, dict):
        return {key: short(each) for key, each in value.items()}
    if isinstance(value, list):
        shown = value[:1] if value and isinstance(value[0], dict) else value
        return [short(each) for each in shown]
    return FOLDER.sub("/var/lib/anabranch", value) if isinstance(value, str) else value


FOLDER = re.compile(r"/\S*/anabranch-\w+(?=/broker)")


def written(printed) -> str:
    """The examples as they stand on the page."""
    blocks = []
    for number, (example, text) in enumerate(printed.items()):
        if number == 1:
            blocks.append("## Commands\n")
        pretty = json.dumps(short(json.loads(text)), indent=2, ensure_ascii=False)
        blocks.append(f"### `anabranch {example}`\n\n```json\n{pretty}\n```\n")
    return "\n" + "\n".join(blocks)


def test_the_page_shows_what_the_verbs_print(printed):
    text = PAGE.read_text()
    if os.environ.get("REWRITE_GOLDEN"):
        PAGE.write_text(text[: text.index(MARK)] + MARK + written(printed))
        text = PAGE.read_text()
    shown = dict(BLOCK.findall(text))
    assert list(shown) == list(EXAMPLES)
    wrong = {
        example: found
        for example in EXAMPLES
        if (
            found := differences(
                shape(json.loads(shown[example])), shape(json.loads(printed[example]))
            )
        )
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("shown", "now"),
    [
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": "1"}),
        ([{"a": [1]}], [{"a": ["x"]}]),
        ({}, {"a": True}),
    ],
)
def test_a_changed_field_is_found(shown, now):
    assert differences(shape(shown), shape(now))
