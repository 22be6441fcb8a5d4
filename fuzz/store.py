"""What fuzzing keeps: the corpus in the repository, what a machine found since, and the counts.

fuzz/corpus/TARGET.b64          an input a line in base64, in the repository, minimised
fuzz/regressions/NAME.b64       one input that once broke a rule, after a line that says which
.cache/fuzz/TARGET.b64          inputs that reached something new here
.cache/fuzz/findings/           what broke a rule here: the input, and a text beside it
.cache/fuzz/counts.json         inputs, requests and CPU seconds so far, by target and commit
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "fuzz" / "corpus"
REGRESSIONS = ROOT / "fuzz" / "regressions"
CACHE = ROOT / ".cache" / "fuzz"


def read(path: Path) -> list[bytes]:
    """The inputs of a file; a line that begins with # says something about the next."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [base64.b64decode(line) for line in lines if line and not line.startswith("#")]


def write(path: Path, entries: Iterable[bytes]) -> None:
    """All inputs of a file, in their order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(base64.b64encode(each).decode() + "\n" for each in entries))


def append(path: Path, entry: bytes) -> None:
    """One more input."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(base64.b64encode(entry).decode() + "\n")


def known(target: str, cache: Path = CACHE) -> list[bytes]:
    """The corpus of a target: the repository's, then this machine's."""
    found = [*read(CORPUS / f"{target}.b64"), *read(cache / f"{target}.b64")]
    return list(dict.fromkeys(found))


def regressions() -> dict[str, tuple[str, bytes]]:
    """Name -> (target, input) of everything that once broke a rule."""
    found = {}
    for path in sorted(REGRESSIONS.glob("*.b64")):
        target = path.stem.partition("-")[0]
        (entry,) = read(path)
        found[path.stem] = (target, entry)
    return found


def save_finding(cache: Path, name: str, entry: bytes, text: str) -> Path:
    """Keep an input that broke a rule, and what it broke."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    folder = cache / "findings"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.partition(':')[0]}-{digest}.b64"
    path.write_text("".join(f"# {line}\n" for line in text.splitlines()[-40:]))
    append(path, entry)
    return path


def commit() -> str:
    """The commit that is fuzzed, as git names it."""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return answer.stdout.strip() or "no git"


def load_counts(cache: Path) -> dict[str, Any]:
    """Commit -> target -> counts."""
    path = cache / "counts.json"
    return json.loads(path.read_text()) if path.exists() else {}


def save_counts(cache: Path, counts: dict[str, Any]) -> None:
    """Keep the counts, whole or not at all."""
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / "counts.json"
    made = path.with_suffix(".new")
    made.write_text(json.dumps(counts, indent=1, sort_keys=True))
    made.replace(path)
