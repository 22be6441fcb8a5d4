"""Codes, texts and order of checks of admin requests, compared with what Apache Kafka answered."""

import json
from pathlib import Path
from typing import Any

from tests.core.controller.admin_requests import CASES, OLD_DELETE, answers
from tests.core.controller.world import World

from anabranch.core.wire.codec import decode, encode

RECORDED = json.loads(Path(__file__).with_name("kafka_admin_answers.json").read_text())


def sent(response: Any, version: int | None) -> Any:
    """The response as it arrives: older versions leave things out."""
    if version is None:
        return response
    encoded = b"".join(map(bytes, encode(response, version)))
    return decode(type(response), encoded, version)


def test_every_request_is_answered_as_kafka_does() -> None:
    world = World()
    world.start(1)
    differences = []
    for name, request in CASES.items():
        got = answers(sent(world.ask(request, OLD_DELETE.get(name)), OLD_DELETE.get(name)))
        if got != RECORDED[name]:
            differences.append((name, RECORDED[name], got))
    assert differences == []
    assert set(RECORDED) == set(CASES)
