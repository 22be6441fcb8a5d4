"""Elections beside Kafka's own class: the same record for the same state, field by field."""

from __future__ import annotations

import json
from pathlib import Path

from anabranch.core.controller.partitions.elections import Rules, change_isr
from anabranch.core.metadata.image import RECOVERING, PartitionImage
from anabranch.core.types import TopicId

CASES = json.loads((Path(__file__).parent / "kafka_elections.json").read_text())["cases"]


def brokers(text: str) -> tuple[int, ...]:
    return () if text == "-" else tuple(map(int, text.split(",")))


def shown(values: list[int] | None) -> str:
    return "null" if values is None else f"[{','.join(map(str, values))}]"


def ours(given: str) -> str:
    replicas, isr, leader, elr, known, recovery, target, active, minimum, on, election, unclean = (
        given.split()
    )
    partition = PartitionImage(
        brokers(replicas), brokers(isr), int(leader), 5, 9,
        elr=brokers(elr), last_known_elr=brokers(known), recovery_state=int(recovery),
    )  # fmt: skip
    acceptable = set(brokers(active))
    rules = Rules(acceptable.__contains__, int(minimum), on == "1", election == "UNCLEAN")
    gone = frozenset(brokers(unclean))
    record = change_isr(TopicId(b"t" * 16), 0, partition, brokers(target), rules, gone)
    if record is None:
        return "none"
    sets = (record.isr, record.eligible_leader_replicas, record.last_known_elr)
    return f"{record.leader} {' '.join(map(shown, sets))} {record.leader_recovery_state}"


def expected(given: str, kafkas: str) -> str:
    """Kafka's record, but that nobody stays eligible beside a leader who is enough by itself.

    Kafka never comes there: it drops those who are eligible when the minimum is lowered, also where
    nobody is in sync; ours keeps them until one of them leads.
    """
    if kafkas == "none" or int(given.split()[8]) > 1:
        return kafkas
    leader, isr, elr, known, recovery = kafkas.split(" ")
    if isr == f"[{leader}]" and elr != "null" and int(recovery) != RECOVERING:
        elr = "[]"
    return " ".join((leader, isr, elr, known, recovery))


def test_every_case_gives_kafkas_record() -> None:
    assert len(CASES) == 1200
    parsed = [case.split(" -> ") for case in CASES]
    for given, kafkas in parsed:
        assert ours(given) == expected(given, kafkas), given
    assert 0 < sum(expected(*case) != case[1] for case in parsed) < 60
