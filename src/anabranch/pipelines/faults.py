"""What the user of a source, a sink or a job did, or must do: a text that says it."""

from __future__ import annotations


class PipelineFault(Exception):
    """Something cannot be done; the text names the place and the remedy."""


class OptionError(ValueError):
    """An option that cannot be: the text names it and what to write."""
