"""Whose a connection of a listener is, and what the listener offers to those who log in.

What: `session_of` tells who a new connection is from, by its certificate where the listener takes
those; `logins_of` makes the machines of its mechanisms from its settings and from the credentials
and delegation tokens of an image. Rule kept: who must log in is no one until then; a certificate
that no rule names lets no one in; the credentials are those of the image that the role acts on now.
Sources: KIP-371 (names of certificates), KIP-368, KIP-554. Not here: keys and trust
(`server/listener_security.py`), what a login says (`authentication.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.access.bearer import OAUTHBEARER, BearerServer, Verify
from anabranch.core.access.certificate_names import RuleFault, distinguished_name
from anabranch.core.access.delegation_tokens import finder
from anabranch.core.access.plain import PLAIN, PlainServer, plain_users
from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.access.scram_server import CODES, Decoys, ScramServer
from anabranch.core.access.unsecured_token import read_unsecured
from anabranch.core.broker.authentication import Logins
from anabranch.core.broker.gate import Session
from anabranch.core.settings.listener_tokens import token_settings

if TYPE_CHECKING:
    from anabranch.core.access.certificate_names import MappingRules
    from anabranch.core.access.login import Mechanism
    from anabranch.core.access.scram_credential import ScramCredential
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.settings.listener_security import ListenerSettings

Image = Callable[[], "MetadataImage"]


class Chance(NamedTuple):
    """What logins draw: `nonce` gives text without a comma that is never used twice, `secret`
    bytes that no client knows."""

    nonce: Callable[[], str]
    secret: Callable[[], bytes]


def session_of(
    settings: ListenerSettings, rules: MappingRules, certificate: Mapping[str, Any] | None
) -> Session | str:
    """Whose a new connection is, after its handshake; a sentence if it may not be. `certificate`
    is what the client has shown, in the form of `ssl.SSLObject.getpeercert`."""
    if settings.uses_sasl:
        return Session(ANONYMOUS, is_restricted=True)
    if not certificate:
        return Session(ANONYMOUS)
    try:
        subject = distinguished_name(certificate["subject"])
        return Session(Principal("User", rules.name_of(subject)))
    except RuleFault as fault:
        return str(fault)


def logins_of(
    settings: ListenerSettings, image: Image, chance: Chance, verify: Verify | None = None
) -> Logins | None:
    """What a listener offers with SASL, None if nothing; `verify` judges signatures of tokens, None
    where they have none. Raises ConfigFault."""
    if not settings.uses_sasl:
        return None
    names = settings.mechanisms
    return Logins(
        {name: _machine(settings, name, image, chance, verify) for name in names},
        {name: settings.lifetime_ms(name) for name in names},
        settings.failure_delay_ms,
    )


def _machine(
    settings: ListenerSettings, name: str, image: Image, chance: Chance, verify: Verify | None
) -> Callable[[], Mechanism]:
    if name == PLAIN:
        users = plain_users(settings.login_options(name))
        return lambda: PlainServer(users)
    if name == OAUTHBEARER:
        rules = token_settings(settings).rules
        return lambda: BearerServer(verify or read_unsecured, rules)
    return _scram(settings, name, image, chance)


def _scram(
    settings: ListenerSettings, name: str, image: Image, chance: Chance
) -> Callable[[], Mechanism]:
    code = CODES[name]
    decoys = Decoys(code, chance.secret())

    def find(user: str) -> ScramCredential | None:
        return image().scram.get((code, user))

    def decoy(user: str) -> ScramCredential:
        return decoys.of(user, image().scram)

    find_token = finder(name, settings.token_secret, chance.secret(), lambda: image().tokens)
    return lambda: ScramServer(name, find, chance.nonce(), decoy, find_token)
