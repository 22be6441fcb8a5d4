"""What the transactions of one write are named by, with option `exactlyOnce`.

A stream has a name that lasts: that of its checkpoint, or `kafka.transactional.id`. A batch write
has one of its own, unless `jobId` says that it may be the same write as before. Not here: the
transactions (sink_transactions.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple
from uuid import uuid4

from anabranch.pipelines.faults import OptionError

SEPARATORS = "/+"
"""Between the parts of ids: names have none, so that no name begins as another one's ids do."""
NAME = "anabranch"
NAME_BYTES = 8
"""Of a hash that stands for a checkpoint: 16 letters."""


class Scope(NamedTuple):
    """One write, as its transactions are named."""

    name: str
    """What every transactional id begins with."""
    lasts: bool
    """Whether a later driver may write the same, and must learn what was committed."""
    run: str
    """Which driver writes it, empty for a stream: its tasks are told by Spark."""
    timeout_ms: int


def scope_of(given: Mapping[str, str], *, is_stream: bool, timeout_ms: int) -> Scope:
    """The scope of a write whose options are `given`, names in lower case. Raises OptionError."""
    job, prefix = given.get("jobid", ""), given.get("kafka.transactional.id", "")
    for option, text in (("jobId", job), ("kafka.transactional.id", prefix)):
        if set(text) & set(SEPARATORS):
            raise OptionError(f"Option {option!r} may have neither '/' nor '+': use '-' or '_'.")
    if not is_stream:
        run = uuid4().hex
        return Scope(f"{prefix or NAME}+{job or run}", bool(job), run, timeout_ms)
    if job:
        raise OptionError(
            "Option 'jobId' names one batch write, and this is a stream: leave it out. The "
            "checkpoint says what was written."
        )
    checkpoint = given.get("checkpointlocation", "")
    if not (prefix or checkpoint):
        raise OptionError(
            "exactlyOnce needs a name that this stream has after a restart, too: set option "
            "'checkpointLocation', or a 'kafka.transactional.id' that no other query has."
        )
    return Scope(prefix or f"{NAME}-{hashed(checkpoint)}", True, "", timeout_ms)


def hashed(text: str) -> str:
    """Some letters that stand for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[: 2 * NAME_BYTES]
