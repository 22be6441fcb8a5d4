"""How long the dearest requests that are accepted keep the event loop: decoding at the limit.

    python bench/wire/hostile.py [--lines 10]

Fills every array of structures or strings of every request with as many of the smallest elements
as a request may hold (`MOST_REQUEST_ELEMENTS`) and decodes it. Prints a line an array, the slowest
first: milliseconds, bytes of the request. Nothing of this is in a hot path; that it costs nothing
there, `codec.py` shows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from anabranch.core.wire.codec import decoder, encode_bytes
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.primitives import MOST_REQUEST_ELEMENTS
from anabranch.core.wire.schema import Message, fields_of

ROUNDS = 3


def largest(cls: type[Message], version: int) -> Iterator[tuple[str, Message]]:
    """One message an array that can be filled: the field's name and the message."""
    for field in fields_of(cls):
        element = field.type.element
        if version not in field.versions or element is None:
            continue
        if element.kind == "string":
            yield field.name, cls(**{field.name: [""] * MOST_REQUEST_ELEMENTS})
        elif element.struct is not None:
            yield field.name, cls(**{field.name: [element.struct()] * MOST_REQUEST_ELEMENTS})


def milliseconds(cls: type[Message], version: int, request: memoryview) -> float:
    """The fastest of a few rounds."""
    decode = decoder(cls, version)
    spent = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        decode(request, 0)
        spent.append(time.perf_counter() - started)
    return 1000 * min(spent)


def main() -> None:
    """Print the slowest."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=10, help="how many of the slowest")
    lines = parser.parse_args().lines
    found = []
    for spec in API_KEYS.values():
        cls = spec.request
        for version in {cls.versions[0], cls.versions[-1]}:
            for name, message in largest(cls, version):
                request = memoryview(encode_bytes(message, version))
                spent = milliseconds(cls, version, request)
                found.append((spent, len(request), f"{cls.__name__} {version} {name}"))
    print(f"{MOST_REQUEST_ELEMENTS:,} elements: milliseconds, bytes, request")
    for spent, size, name in sorted(found, reverse=True)[:lines]:
        print(f"{spent:8.0f} {size:12,}  {name}")


if __name__ == "__main__":
    main()
