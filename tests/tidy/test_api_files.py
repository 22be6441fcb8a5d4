"""One numbered file an API key, whose header says KIP, behaviour, versions, what is skipped."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from anabranch.core import api

FOLDER = Path(api.__file__).parent
FILES = sorted(FOLDER.glob("p[0-9][0-9]_*.py"))
HEADER = ("KIP", "Versions", "Behaviour", "Skipped")


def headings(docstring: str) -> dict[str, str]:
    """The docstring's `Heading: text` paragraphs, text folded to one line."""
    pattern = rf"^({'|'.join(HEADER)}):(.*?)(?=^(?:{'|'.join(HEADER)}):|\Z)"
    found = re.findall(pattern, docstring, re.MULTILINE | re.DOTALL)
    return {heading: " ".join(text.split()) for heading, text in found}


def versions_text(versions: range) -> str:
    first, last = versions[0], versions[-1]
    return str(first) if first == last else f"{first}-{last}"


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def api_file(request):
    module = importlib.import_module(f"anabranch.core.api.{request.param.stem}")
    return request.param, module.HANDLER, module.__doc__ or ""


def test_there_are_api_files():
    assert FILES


def test_the_number_is_the_api_key(api_file):
    path, handler, _ = api_file
    assert int(path.stem[1:].partition("_")[0]) == handler.api_key


def test_the_name_is_the_api_s(api_file):
    path, handler, _ = api_file
    assert path.stem.partition("_")[2].replace("_", "") == handler.name.lower()


def test_the_header_is_whole(api_file):
    path, handler, docstring = api_file
    found = headings(docstring)
    missing = [heading for heading in HEADER if not found.get(heading)]
    assert not missing, f"{path.name}: the docstring lacks {missing}"
    assert found["Versions"].startswith(versions_text(handler.versions))
    for kip in handler.kips:
        assert kip in found["KIP"], f"{path.name}: {kip} is in HANDLER and not in the header"


def test_what_is_skipped_is_said_twice_or_not_at_all(api_file):
    path, handler, docstring = api_file
    says_nothing = headings(docstring).get("Skipped", "").lower().startswith("nothing")
    assert says_nothing == (handler.skipped == ()), (
        f"{path.name}: `Skipped:` of its header and `skipped` of its HANDLER say the same, or nothing"
    )
    for sentence in handler.skipped:
        assert sentence[0].isupper(), f"{path.name}: {sentence!r}"
        assert sentence.endswith("."), f"{path.name}: {sentence!r}"
