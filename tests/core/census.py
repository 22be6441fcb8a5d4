"""How much each container holds that is reached from an object, by the path that leads there.

What comes and goes must leave nothing behind: after ten times as much, no container may hold more.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from functools import partial
from types import MethodType
from typing import Any

from immutables import Map

CONTAINERS = (dict, list, set, deque)
WHOLE = "anabranch"
"""Objects of this package are looked into, all others are not."""
DEEPEST = 12


def census(root: Any, without: tuple[type, ...] = ()) -> Counter[str]:
    """Path -> how much the containers there hold; objects of some types are not looked into."""
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    left: deque[tuple[Any, str, int]] = deque([(root, type(root).__name__, 0)])
    while left:
        each, path, depth = left.popleft()
        if id(each) in seen or isinstance(each, without) or depth > DEEPEST:
            continue
        seen.add(id(each))
        if isinstance(each, (*CONTAINERS, Map)):
            sizes[path] += len(each)
        left += ((part, path + name, depth + 1) for name, part in parts(each))
    return sizes


def parts(each: Any) -> Iterable[tuple[str, Any]]:
    """What an object consists of, and how a path names it."""
    if isinstance(each, dict | Map):
        return [("[]", part) for entry in each.items() for part in entry]
    if isinstance(each, list | set | deque | tuple):
        return [("[]", part) for part in each]
    if isinstance(each, partial):
        return [("()", part) for part in (each.func, *each.args)]
    if isinstance(each, MethodType):
        return [("()", each.__self__)]
    if not type(each).__module__.startswith(WHOLE):
        return []
    return [(f".{name}", part) for name, part in fields(each).items()]


def fields(each: Any) -> Mapping[str, Any]:
    names = [*getattr(each, "__dict__", {}), *getattr(type(each), "__struct_fields__", ())]
    for kind in type(each).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return {name: getattr(each, name) for name in names if hasattr(each, name)}


def grown(before: Counter[str], after: Counter[str], least: int) -> dict[str, int]:
    """Paths under which so much more is held, and how much more."""
    return {path: more for path in after if (more := after[path] - before[path]) >= least}
