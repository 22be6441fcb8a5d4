"""Every request handler that there is, found by the names of the files that hold them.

The rule it keeps: a file `pNN_name.py` in this package is served, and nothing else is; ApiVersions
and `core.node.requests` both ask here. Importing this module imports no handler.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from anabranch.core import api
from anabranch.core.api.handler import Handler

API_FILE = re.compile(r"p\d{2,5}_\w+")
BROKER = "broker"
CONTROLLER = "controller"


@cache
def handlers() -> dict[int, Handler]:
    """API key -> handler, in the order of keys."""
    names = sorted(
        each.name for each in iter_modules(api.__path__) if API_FILE.fullmatch(each.name)
    )
    found: list[Handler] = [import_module(f"{api.__name__}.{name}").HANDLER for name in names]
    return {each.api_key: each for each in sorted(found, key=lambda each: each.api_key)}


@cache
def advertised(role: str) -> tuple[tuple[int, int, int], ...]:
    """(API key, first version, last version) of what a role answers, in the order of keys."""
    return tuple(
        (handler.api_key, versions[0], versions[-1])
        for handler in handlers().values()
        if getattr(handler, role) is not None
        for versions in (handler.versions if handler.advertised is None else handler.advertised,)
        if versions
    )
