"""The source text of the generated encoder and decoder of a message, to be read by people.

`python -m anabranch.core.wire.generated_source ProduceRequest 9` shows it. Not here: how it is
generated (compile.py).
"""

from __future__ import annotations

import sys
from importlib import import_module

from anabranch.core.wire.compile_decode import decode_source
from anabranch.core.wire.compile_encode import encode_source
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.schema import Message


def find_message(name: str) -> type[Message]:
    """A message class by its name: a request, a response or a record."""
    for spec in API_KEYS.values():
        if name in (spec.name + "Request", spec.name + "Response"):
            return spec.request if name.endswith("Request") else spec.response
    for module in ("metadata_records", "offsets_records", "control_records"):
        cls = getattr(import_module(f"anabranch.core.wire.{module}"), name, None)
        if cls is not None:
            return cls  # type: ignore[no-any-return]
    raise LookupError(f"no message is called {name}")


def main(arguments: list[str]) -> int:
    """Write the generated source of a message's version to standard output."""
    if len(arguments) != 2 or not arguments[1].isdecimal():
        sys.stderr.write("usage: python -m anabranch.core.wire.generated_source MESSAGE VERSION\n")
        return 2
    try:
        cls = find_message(arguments[0])
    except LookupError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    version = int(arguments[1])
    sys.stdout.write(decode_source(cls, version).text + "\n\n" + encode_source(cls, version).text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
