"""What Apache Kafka 4.1 answers to each request while each right is missing, as recorded data.

    python -m compat.rights_table            # ask this checkout, and print what differs
    python -m compat.rights_table --record   # ask Apache Kafka, and write the data and the page

What: `classes` brings the answers of `rights.Table` into a form that has each different answer of a
request once; `page` is the page of the documentation. Rule kept: the data are Kafka's answers, and
a test compares those of a node with them (`tests/compat/test_rights.py`), so that neither Java nor
Kafka is needed to see a difference. Not here: the requests (`rights.py`).
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.servers import ROOT, SERVERS, free_port

from anabranch.core.errors import ErrorCode
from compat.rights import Table
from compat.row import Failed
from compat.token_rights import LISTENERS
from compat.token_rights import settings as token_settings

DATA = ROOT / "tests" / "compat" / "data" / "kafka_4_1_0_rights.json"
PAGE = ROOT / "docs" / "reference" / "rights.md"
WORK = ROOT / ".cache" / "rights"
EVERY, NONE = "every right", "no right"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
}
INTRODUCTION = """Which rights a request needs, told by what is answered when one is missing. For
each request, in the newest version that Apache Kafka 4.1 and Anabranch both serve, the table lists
the rights without which the answer differs from the answer to a client with all rights. *Less is
shown* means: the answer has no other error, but leaves out what the client may not see. *All* means
a client without any right.

The answers were recorded from Apache Kafka 4.1.0. A test asks a node of Anabranch the same
requests, in their oldest and newest version, and compares error codes, error texts, names and
authorized operations. `python -m compat.rights_table --record` records them again.

Requests about [delegation tokens](../operate/secure-a-cluster.md#delegation-tokens) came from a
client that had logged in, which has a token of its own; the others came without a login. Either
`Describe` on a token or `DescribeTokens` on its owner shows the token of another user.
"""

TEXT, JAVA = "error_message", "Request Request("
REFUSALS = frozenset({
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
})  # fmt: skip

Rows = Mapping[str, Mapping[str, Any]]
Classes = dict[str, list[list[Any]]]


class Node:
    """A server as `Table` asks it."""

    def __init__(self, bootstrap: str, seconds: float = 60.0) -> None:
        self.bootstrap = bootstrap
        self._seconds = seconds

    def wait(self, ask: Callable[[], Any], what: str) -> Any:
        """Ask again until the answer is true, and return it; `Failed` names `what` otherwise."""
        until = time.monotonic() + self._seconds
        while not (answer := ask()):
            if time.monotonic() > until:
                raise Failed(f"not within {self._seconds:.0f} s: {what}")
            time.sleep(0.02)
        return answer


def classes(rows: Rows) -> Classes:
    """By request: each different answer with what was missing; the first is to all rights."""
    found: Classes = {}
    for request in rows[EVERY]:
        answers: list[list[Any]] = []
        for missing in (EVERY, *(each for each in rows if each != EVERY)):
            answer = plain(json.loads(json.dumps(rows[missing][request])))
            known = next((each for each in answers if each[0] == answer), None)
            if known is None:
                answers.append([answer, [missing]])
            else:
                known[1].append(missing)
        found[request] = answers
    return found


def differences(wanted: Classes, rows: Rows) -> dict[str, Any]:
    """What a server answers otherwise, by request and what was missing; nothing when all is
    equal."""
    found: dict[str, Any] = {}
    for missing, answers in rows.items():
        for request, answer in answers.items():
            here = json.loads(json.dumps(answer))
            expected = next(
                (each for each, lacks in wanted.get(request, []) if missing in lacks),
                "not recorded",
            )
            if not agree(expected, here):
                found[f"{request}, {missing}"] = {"kafka": expected, "here": here}
    return found


def agree(kafkas: Any, ours: Any) -> bool:
    """Whether two answers are equal, as far as both must be: where Kafka gives no text, or prints a
    Java object, or tells of something else than a missing right, any text will do."""
    if isinstance(kafkas, list) and isinstance(ours, list):
        return len(kafkas) == len(ours) and all(map(agree, kafkas, ours))
    if not (isinstance(kafkas, dict) and isinstance(ours, dict)):
        return bool(kafkas == ours)
    return kafkas.keys() - {TEXT} == ours.keys() - {TEXT} and all(
        agree(value, ours.get(name)) for name, value in plain(kafkas).items()
    )


def is_compared(kafkas: Mapping[str, Any]) -> bool:
    """Whether the text of a part of Kafka's answer is the one to give."""
    text = kafkas[TEXT]
    is_refusal = kafkas.get("error_code") in REFUSALS
    return is_refusal and bool(text) and not text.startswith(JAVA)


def plain(answer: Any) -> Any:
    """An answer to be recorded: of texts only what is compared."""
    if isinstance(answer, list):
        return [plain(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    return {
        name: plain(value) for name, value in answer.items() if name != TEXT or is_compared(answer)
    }


def without_texts(answer: Any) -> Any:
    """An answer without its texts."""
    if isinstance(answer, list):
        return [without_texts(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    return {name: without_texts(value) for name, value in answer.items() if name != TEXT}


def written(data: Classes) -> str:
    """The data as JSON, each different answer on a line."""
    parts = []
    for request, answers in data.items():
        each = ",\n  ".join(json.dumps(answer, ensure_ascii=False) for answer in answers)
        parts.append(f" {json.dumps(request)}: [\n  {each}\n ]")
    return "{\n" + ",\n".join(parts) + "\n}"


def codes(answer: Any) -> set[int]:
    """The error codes in an answer."""
    if isinstance(answer, list):
        return {code for each in answer for code in codes(each)}
    if not isinstance(answer, dict):
        return set()
    own = {value for name, value in answer.items() if name.endswith("error_code")}
    return (own - {0}) | {code for each in answer.values() for code in codes(each)}


def told(full: Any, answer: Any) -> str:
    """What an answer says beside that to a client with all rights, in words."""
    if answer == "hangs up":
        return "the connection is closed"
    names = sorted(ErrorCode(code).name for code in codes(answer) - codes(full))
    return ", ".join(f"`{each}`" for each in names) or "less is shown"


def newest(data: Classes) -> Iterable[str]:
    """Of each request and label the newest version that was asked."""
    best: dict[tuple[str, str], tuple[int, str]] = {}
    for request in data:
        name, version, label = request.split(" ", 2)
        key = name, label
        best[key] = max(best.get(key, (-1, "")), (int(version), request))
    return [request for _, request in best.values()]


def lines(data: Classes) -> Iterable[str]:
    """The rows of the page."""
    for request in newest(data):
        name, version, label = request.split(" ", 2)
        (full, _), *others = data[request]
        lacks: dict[str, list[str]] = {}
        for answer, missing in others:
            lacks.setdefault(told(full, answer), []).extend(map(_right, missing))
        cells = [f"{text}: {', '.join(rights)}" for text, rights in lacks.items()]
        what = f" ({label})" if label not in ("", "None") else ""
        answers = "; ".join(cells) or "the same answer whatever is missing"
        yield f"| {name.removesuffix('Request')}{what} | {version} | {answers} |"


def _right(missing: str) -> str:
    return "all" if missing == NONE else missing.removeprefix("not ").replace("_", " ").lower()


def page(data: Classes) -> str:
    """The page of the documentation."""
    return "\n".join(
        ["# Rights of requests", "", INTRODUCTION, "| request | version | without which right |",
         "| --- | --- | --- |", *lines(data), ""]
    )  # fmt: skip


def asked(name: str) -> Rows:
    """Start a server of that name and ask it everything."""
    shutil.rmtree(WORK, ignore_errors=True)
    ports = [free_port() for _ in LISTENERS]
    server = SERVERS[name]({**SETTINGS, **token_settings(*ports)}, WORK, (ports[0], ports[1]))
    try:
        server.start()
        return Table(Node(server.bootstrap), f"127.0.0.1:{ports[2]}").rows()
    finally:
        server.stop()


def main() -> int:
    """See the module."""
    if "--record" in sys.argv:
        data = classes(asked("kafka"))
        DATA.parent.mkdir(parents=True, exist_ok=True)
        DATA.write_text(written(data) + "\n")
        PAGE.write_text(page(data))
        return 0
    found = differences(json.loads(Path(DATA).read_text()), asked("anabranch"))
    sys.stdout.write(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
