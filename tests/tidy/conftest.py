"""What the tidy tests look at: the parsed modules of the package, and the files git tracks."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bench", "chaos", "compat", "fuzz", "scripts")


@dataclass(frozen=True)
class Module:
    """One module. Of those that the wheel ships, `room` is the first folder below anabranch, or the
    module's own name, and the package that only Spark looks for is a room by itself; of a tool, it
    is its folder."""

    path: Path
    name: str
    room: str
    text: str
    tree: ast.Module

    @property
    def place(self) -> str:
        """The path from the root of the repository, as people write it."""
        return str(self.path.relative_to(ROOT))


def _module(path: Path, base: Path) -> Module:
    parts = path.relative_to(base).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    text = path.read_text(encoding="utf-8")
    room = parts[0]
    if room == "anabranch":
        room = parts[1] if len(parts) > 1 else ""
    return Module(path, ".".join(parts), room, text, ast.parse(text, str(path)))


@pytest.fixture(scope="session")
def modules() -> list[Module]:
    """Every module that the wheel ships."""
    base = ROOT / "src"
    return [_module(path, base) for path in sorted(base.rglob("*.py"))]


@pytest.fixture(scope="session")
def tools() -> list[Module]:
    """Every module that measures, tests or describes the package, and is not shipped."""
    return [_module(path, ROOT) for tool in TOOLS for path in sorted((ROOT / tool).rglob("*.py"))]


@pytest.fixture(scope="session")
def tracked_files() -> list[Path]:
    """What git tracks; outside a git checkout, nothing can be said."""
    answer = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in answer.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]
