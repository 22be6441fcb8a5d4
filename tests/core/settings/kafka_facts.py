"""What Apache Kafka 4.1.0 itself printed about its settings, read from tests/core/settings/data."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parent / "data"
NULL = "\\N"


def rows(file_name: str) -> list[list[str]]:
    """The rows of a data file without its comment lines."""
    lines = (DATA / file_name).read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def text_or_none(cell: str) -> str | None:
    """A cell in which `\\N` stands for null."""
    return None if cell == NULL else cell
