"""Says once what a node cannot do for the topics that there are, and again when that changes."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.settings.broker import BrokerConfig
from anabranch.server.logs import logger

LOG = logger("node")


class Unserved:
    """`why` is the rule; `config` holds the node's own settings."""

    def __init__(
        self, why: Callable[[MetadataImage, BrokerConfig], str], config: BrokerConfig
    ) -> None:
        self._why, self._config = why, config
        self._said: str | None = None

    def look(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """The metadata moved. Without a change of settings, it is looked at the first time only."""
        if self._said is not None and (delta is None or not delta.changed_configs):
            return
        why = self._why(image, self._config)
        if why and why != self._said:
            LOG.error("this node cannot serve a topic as it should", why=why)
        self._said = why
