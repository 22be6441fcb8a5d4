"""A hook of MkDocs: in search, what answers a question comes before why it was decided so.

A page is found by its heading, which has the words that operators use, not by its short name in the
navigation. `tests/pages/test_search.py` asks as they do.
"""

from __future__ import annotations

from typing import Any

BOOSTS = {
    "decisions/": 1e-6,
    "reference/mutants": 1e-3,
    "reference/": 0.3,
    "operate/secure-a-cluster": 1.6,
    "operate/move-cluster": 1.5,
}
"""By the beginning of a page's path, the first that fits; other pages have 1."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Give a page its rank and its name, unless it has them."""
    path = page.file.src_uri
    boost = next((value for begin, value in BOOSTS.items() if path.startswith(begin)), None)
    if boost is not None:
        page.meta.setdefault("search", {"boost": boost})
    if markdown.startswith("# "):
        page.meta.setdefault("title", markdown.partition("\n")[0].removeprefix("# "))
    return markdown
