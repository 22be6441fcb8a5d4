"""Which authorizer a role of a node has, and by which rules it decides.

What: `authorizer_of` reads the settings. Rule kept: the rules are those of the image that the role
acts on now, and there are none to decide by before it has followed any metadata. Server and
simulator both ask here. Not here: the decisions (`core/access/standard_authorizer.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.access.authorize import AllowAll, Authorizer, BrokersApart
from anabranch.core.access.standard_authorizer import Audit, StandardAuthorizer, super_users_of
from anabranch.core.metadata.image import MetadataImage

if TYPE_CHECKING:
    from anabranch.core.settings.broker import BrokerConfig


def authorizer_of(
    config: BrokerConfig, image: Callable[[], MetadataImage], *, brokers_apart: str = "",
    trusted: frozenset[str] = frozenset(), audit: Audit | None = None,
) -> Authorizer:  # fmt: skip
    """Who may do what on the listeners of a role that acts on `image`.

    `brokers_apart` is the listener that is the brokers' own, "" where they share it with clients;
    on `trusted` listeners everything is allowed; `audit` is told of each decision.
    """
    users = super_users_of(config.super_users)
    if config.authorizer_class_name:
        return StandardAuthorizer(
            lambda: known.acls if (known := image()).offset >= 0 else None,
            users,
            open_without_acl=config.allow_everyone_if_no_acl_found,
            trusted=trusted,
            audit=audit,
        )
    return BrokersApart(brokers_apart, users) if brokers_apart else AllowAll()
