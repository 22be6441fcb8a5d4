"""What the errors of obstore mean: away, missing, taken, or wrong until it is mended.

What: one sentence for each kind, with the store, what was tried, the server's own code and a
remedy. Why from the text: the library gives an HTTP status and the server's code there alone. Rule
kept: nothing else of that text is shown, since it may quote requests and their signatures. Not
here: calls.
"""

from __future__ import annotations

import re

from obstore.exceptions import (
    AlreadyExistsError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from anabranch.core.diskless.claim import SETTING
from anabranch.core.diskless.objects import ObjectMissing, ObjectsAway, ObjectTaken
from anabranch.core.errors import StorageFault

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
_CAUSE = re.compile(r'(?:message|error): "([^"<>?]{1,120})"')
_KEYS_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
"""Where a machine in a cloud asks for keys when it was given none."""
NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound"})
RANGE_NOT_SATISFIABLE = 416
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
"""S3's words for temporary keys whose time is over, with 400 or 403."""
UNKNOWN_KEYS = frozenset({"InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"})
WRONG_CLOCK = "RequestTimeTooSkewed"
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses of a server that is busy or has a fault of its own, and of puts in conflict."""
ELSEWHERE = frozenset({301, 307, 400})
"""What S3 answers at the endpoint of another region."""


class PastEnd(ObjectMissing):
    """A range lies beyond the end of its object."""


def fault_of(
    problem: Exception, url: str, what: str, *, is_put: bool, setting: str = SETTING
) -> StorageFault:
    """The exception to raise for one of obstore's; `setting` is what names the store."""
    place = f"{url}: {what}"
    text = str(problem)
    status, code = _found(_STATUS, text), _found(_CODE, text)
    said = " ".join(each for each in (status, code) if each)
    if isinstance(problem, AlreadyExistsError):
        return ObjectTaken(f"{place}: it exists")
    if any(each in text for each in _KEYS_SERVICES):
        return StorageFault(
            f"{place}: no keys were found; give them as options of the URL or in the environment "
            "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3://, GOOGLE_SERVICE_ACCOUNT for gs://)"
        )
    if code in NO_BUCKET or (is_put and isinstance(problem, FileNotFoundError)):
        return StorageFault(
            f"{place}: there is no such bucket ({said}); create it, or correct {setting}"
        )
    if isinstance(problem, FileNotFoundError):
        return ObjectMissing(f"{place}: there is no such object")
    if code in EXPIRED:
        return StorageFault(
            f"{place}: refused ({said}); the keys have expired; give new ones, or keys that do not "
            "expire, and restart the broker"
        )
    if code == WRONG_CLOCK:
        return StorageFault(
            f"{place}: refused ({said}); the clocks differ too much: set the clock of this machine"
        )
    is_denied = isinstance(problem, PermissionDeniedError | UnauthenticatedError)
    if is_denied or code in UNKNOWN_KEYS:
        return StorageFault(
            f"{place}: refused ({said}); check the keys, and that they may read, write, list and "
            "delete objects there"
        )
    if not status and "without LOCATION" in text:  # the library keeps the status to itself
        status, said = "301", "it lies elsewhere"
    return _by_status(int(status or 0), place, said, _found(_CAUSE, text), setting)


def _by_status(status: int, place: str, said: str, cause: str, setting: str) -> StorageFault:
    if status == RANGE_NOT_SATISFIABLE:
        return PastEnd(f"{place}: it is shorter ({said})")
    if not status:
        return ObjectsAway(
            f"{place}: no answer ({cause or 'the connection failed'}); check the endpoint in "
            f"{setting} and the network"
        )
    if status in PASSING:
        return ObjectsAway(f"{place}: the store cannot answer now ({said}); the broker tries again")
    if status in ELSEWHERE and place.startswith("s3://"):
        return StorageFault(
            f"{place}: refused ({said}); check the options region and endpoint of {setting}"
        )
    return StorageFault(
        f"{place}: refused ({said}); check that the endpoint in {setting} is an object "
        "store of this kind"
    )


def _found(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found.group(1) if found else ""
