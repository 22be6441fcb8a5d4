"""The rehearsals that come with the package, by name: `shipped/<name>.yaml`.

Why: each asks a question that people ask before they trust a cluster, and is an example to copy.
"""

from __future__ import annotations

from importlib.resources import files

SUFFIX = ".yaml"


def names() -> list[str]:
    """The names, sorted."""
    folder = files("anabranch.sim.rehearsal").joinpath("shipped")
    return sorted(
        each.name.removesuffix(SUFFIX) for each in folder.iterdir() if each.name.endswith(SUFFIX)
    )


def text_of(name: str) -> str | None:
    """What the file of that name says, None when there is none."""
    if name not in names():
        return None
    folder = files("anabranch.sim.rehearsal").joinpath("shipped")
    return folder.joinpath(name + SUFFIX).read_text(encoding="utf-8")
