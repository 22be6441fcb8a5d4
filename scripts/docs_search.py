"""A hook of MkDocs: in search, what answers a question comes before why it was decided so."""

from __future__ import annotations

from typing import Any

BOOSTS = {"decisions/": 0.1, "reference/": 0.6}
"""By the beginning of a page's path; other pages have 1."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Give a page its rank, unless it has one."""
    for begin, boost in BOOSTS.items():
        if page.file.src_uri.startswith(begin):
            page.meta.setdefault("search", {"boost": boost})
    return markdown
