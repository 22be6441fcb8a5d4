"""What a request is answered whose handler raised: the error, where the answer has room for it.

Not here: which code a fault has (`core/errors.py`).
"""

from __future__ import annotations

from typing import Any

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.frame import frame_response


def error_answer(response: Any, version: int, code: ErrorCode, sentence: str) -> Any | None:
    """A response that says only the error, or None where this version has no room for one."""
    fields = response.__struct_fields__
    if "error_code" not in fields:
        return None
    answer = response(error_code=code)
    if frame_response(0, answer, version) == frame_response(0, response(), version):
        return None
    if "error_message" in fields:
        answer.error_message = sentence
    return answer
