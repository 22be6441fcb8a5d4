"""Listeners as `listeners`, `advertised.listeners` and the protocol map write them.

The rule it keeps: an address that other machines can reach is never plaintext by accident; the
setting `listener.plaintext.beyond.loopback.allow` must say that it is meant.
Source: Kafka 4.1's SocketServerConfigs and KafkaConfig (forms, duplicates, the protocol map in
KRaft). What it is not: it opens nothing and resolves no name.
"""

from __future__ import annotations

import errno
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from anabranch.core.settings.setting import ConfigFault

LISTENER = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")
LARGEST_PORT = 65_535
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WILDCARDS = ("", "0.0.0.0", "::")


class Listener(msgspec.Struct, frozen=True):
    """One address. An empty host is every address of the machine; port 0 is any free one."""

    name: str
    host: str
    port: int
    security_protocol: str

    @property
    def text(self) -> str:
        """As it is written in `listeners`."""
        return f"{self.name}://{host_text(self.host)}:{self.port}"

    @property
    def encrypted(self) -> bool:
        """Whether others on the way can read it."""
        return self.security_protocol.endswith("SSL")


def host_text(host: str) -> str:
    """A host as it stands before `:port`: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address; an unknown name counts as reachable."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.split("%")[0]).is_loopback
    except ValueError:
        return False


def bind_sentence(where: str, fault: Exception, setting: str) -> str:
    """What is wrong with an address that could not be bound, and what to do, in one line; `where`
    begins it, `setting` has the address."""
    number = getattr(fault, "errno", None)
    if number == errno.EADDRINUSE or "in use" in str(fault):
        return (
            f"{where}: the port is in use; stop the other program or set another port in {setting}"
        )
    if number in (errno.EACCES, errno.EPERM):
        return f"{where}: this user may not bind it; take a port above 1023 in {setting}"
    if number == errno.EADDRNOTAVAIL:
        return f"{where}: no interface of this machine has that address; correct {setting}"
    if isinstance(fault, OverflowError):
        return f"{where}: a port lies between 0 and 65535; correct {setting}"
    return f"{where}: {fault}; correct {setting}"


def listener_names(text: str | None) -> tuple[str, ...]:
    """Names between commas, in capitals, as listeners have them."""
    return tuple(each.upper() for each in _elements(text or ""))


def parse_protocol_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,…` as a mapping in upper case; raises ConfigFault."""
    setting = "listener.security.protocol.map"
    found: dict[str, str] = {}
    for pair in _elements(text):
        name, _, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not name or not protocol:
            raise ConfigFault(f"{pair!r} is not written as NAME:PROTOCOL", name=setting)
        if protocol not in PROTOCOLS:
            raise ConfigFault(
                f"Invalid security protocol `{protocol}` defined in {setting}; "
                f"it is one of {', '.join(PROTOCOLS)}",
                name=setting,
            )
        if name in found:
            raise ConfigFault(f"listener {name} is there twice", name=setting)
        found[name] = protocol
    return found


def parse_listeners(setting: str, text: str, protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """The listeners of `setting`; raises ConfigFault for a bad form, name or port."""
    found = []
    for element in _elements(text):
        match = LISTENER.fullmatch(element)
        if match is None:
            raise ConfigFault(
                f"Unable to parse {element} to a broker endpoint; write NAME://host:port",
                name=setting,
            )
        name, host, port = match[1].strip().upper(), match[2], int(match[3])
        if name not in protocols:
            raise ConfigFault(
                f"No security protocol defined for listener {name}; "
                f"add {name}:PLAINTEXT (or another protocol) to listener.security.protocol.map",
                name=setting,
            )
        if not _may_be_host(host):
            raise ConfigFault(f"{element}: {host} is not a host name", name=setting)
        if port > LARGEST_PORT:
            raise ConfigFault(f"{element}: the largest port is {LARGEST_PORT}", name=setting)
        found.append(Listener(name, host, port, protocols[name]))
    refuse_duplicate_names(setting, found)
    return tuple(found)


def refuse_duplicate_names(setting: str, listeners: Sequence[Listener]) -> None:
    """Each listener has a name of its own."""
    for name in _repeated(each.name for each in listeners):
        raise ConfigFault(
            f"Each listener must have a different name, {name} is there twice", name=setting
        )


def refuse_duplicate_ports(setting: str, listeners: Sequence[Listener]) -> None:
    """Each listener has a port of its own, unless one is IPv4 and the other IPv6."""
    bound = [each for each in listeners if each.port != 0]
    for port in _repeated(each.port for each in bound):
        families = [":" in each.host for each in bound if each.port == port]
        if sorted(families) != [False, True]:
            raise ConfigFault(
                f"Each listener must have a different port, {port} is there twice", name=setting
            )


def refuse_unmeant_plaintext(setting: str, listeners: Iterable[Listener], allow: bool) -> None:
    """No unencrypted listener beyond loopback unless the configuration says so."""
    for listener in listeners:
        if not allow and not listener.encrypted and not is_loopback(listener.host):
            raise ConfigFault(
                f"{listener.text} would accept unencrypted connections from other machines; bind "
                "it to 127.0.0.1, or set listener.plaintext.beyond.loopback.allow=true if that is "
                "meant",
                name=setting,
            )


def refuse_unmeant_strangers(setting: str, listener: Listener, is_meant: bool) -> None:
    """No listener beyond loopback whose clients do not show who they are, unless that is meant."""
    if not is_meant and not is_loopback(listener.host):
        raise ConfigFault(
            f"{listener.text} would accept clients from other machines that do not show who they "
            "are; set ssl.client.auth=required, use SASL_SSL, or set "
            "listener.unauthenticated.beyond.loopback.allow=true if that is meant",
            name=setting,
        )


def _may_be_host(host: str) -> bool:
    """Whether a name can be asked for at all: its parts have 1 to 63 letters."""
    return not host or all(0 < len(part) < 64 for part in host.removesuffix(".").split("."))


def _elements(text: str) -> list[str]:
    return [element.strip() for element in text.split(",") if element.strip()]


def _repeated(values: Iterable[object]) -> list[object]:
    seen: set[object] = set()
    repeated = []
    for value in values:
        if value in seen and value not in repeated:
            repeated.append(value)
        seen.add(value)
    return repeated
