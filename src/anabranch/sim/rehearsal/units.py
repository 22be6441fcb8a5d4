"""Times, sizes and rates as people write them: `10s`, `20 GB`, `100 MB/s`, `5/s`.

The rule it keeps: a unit is always said, but a bare number is seconds, bytes or a count a second.
KB, MB, GB, TB are powers of 1000; KiB, MiB, GiB, TiB of 1024. Not here: which field wants which.
"""

from __future__ import annotations

import re

SECOND_US = 1_000_000

TIMES_US = {"ms": 1_000, "s": SECOND_US, "m": 60 * SECOND_US, "h": 3_600 * SECOND_US}

SIZES = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}

_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-zA-Z]*)", re.ASCII)


def _number(text: str, units: dict[str, int], bare: int) -> int | None:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    unit = match.group(2).lower()
    factor = bare if not unit else units.get(unit)
    return None if factor is None else round(float(match.group(1)) * factor)


def duration_us(text: str) -> int | None:
    """Microseconds of `500ms`, `10s`, `2m`, `1h` or a bare count of seconds; None when unclear."""
    return _number(text, TIMES_US, SECOND_US)


def size_bytes(text: str) -> int | None:
    """Bytes of `512`, `1 KB`, `20 GiB`; None when unclear."""
    return _number(text, SIZES, 1)


def rate_bytes(text: str) -> int | None:
    """Bytes a second of `100 MB/s`, or of `1 Gbit/s`; None when unclear."""
    amount, slash, second = text.strip().partition("/")
    if slash and second.strip() != "s":
        return None
    bits = amount.strip().lower()
    if bits.endswith("bit"):
        whole = size_bytes(bits.removesuffix("bit") + "b")
        return None if whole is None else whole // 8
    return size_bytes(amount)


def rate_per_second(text: str) -> float | None:
    """Events a second of `5/s`, `30/m` or a bare number; None when unclear."""
    amount, _, unit = text.strip().partition("/")
    match = _QUANTITY.fullmatch(amount.strip())
    seconds = {"": 1, "s": 1, "m": 60, "h": 3600}.get(unit.strip())
    if match is None or match.group(2) or seconds is None:
        return None
    return float(match.group(1)) / seconds


def say_duration(seconds: float) -> str:
    """A time for people: `43 ms`, `1.3 s`, `41 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def say_bytes(count: int) -> str:
    """A size for people, in powers of 1000: `950 B`, `1.5 KB`, `20.0 GB`."""
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("the last unit takes what is left")
