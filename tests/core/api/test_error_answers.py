"""Whatever a handler raises, its request has an answer that can be sent, or none."""

from __future__ import annotations

import pytest

from anabranch.core.api.error_answers import error_answer
from anabranch.core.api.registry import handlers
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.frame import framer
from anabranch.core.wire.messages import API_KEYS

VERSIONS = [
    pytest.param(API_KEYS[handler.api_key].response, version, id=f"{handler.name} {version}")
    for handler in handlers().values()
    for version in handler.versions
]
ODD = ("", "a sentence", "\u6c34" * 40_000, "/data/\udce9", "\x00")
"""One is longer than a string may be, one has what UTF-8 has not."""


@pytest.mark.parametrize(("response", "version"), VERSIONS)
def test_any_fault_has_an_answer_that_can_be_sent(response, version):
    frame = framer(response, version)
    answers = [
        error_answer(response, version, ErrorCode.UNKNOWN_SERVER_ERROR, each) for each in ODD
    ]
    assert len({answer is None for answer in answers}) == 1
    for answer, sentence in zip(answers, ODD, strict=True):
        if answer is not None:
            assert frame(1, answer)
            said = getattr(answer, "error_message", sentence)
            assert said == sentence or len(said) == 8_000 or "\udce9" in sentence
