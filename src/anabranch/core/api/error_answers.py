"""What a request is answered whose handler raised: the error, where the answer has room for it.

Not here: which code a fault has (`core/errors.py`).
"""

from __future__ import annotations

from typing import Any

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.frame import frame_response

LONGEST_SENTENCE = 8_000
"""Characters: what a fault says may quote what a client sent, and a string of older versions has
room for 32,767 bytes."""


def error_answer(response: Any, version: int, code: ErrorCode, sentence: str) -> Any | None:
    """A response that says only the error, or None where this version has no room for one."""
    fields = response.__struct_fields__
    if "error_code" not in fields:
        return None
    answer = response(error_code=code)
    if frame_response(0, answer, version) == frame_response(0, response(), version):
        return None
    if "error_message" in fields:
        said = sentence[:LONGEST_SENTENCE].encode(errors="replace")  # names of files may be odd
        answer.error_message = said.decode()
    return answer
