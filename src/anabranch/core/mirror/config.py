"""An mm2.properties as flows: who is mirrored to whom, what of it, and how.

What: `read_config` takes the keys of the file, with the values that providers stand for already put
in, and gives clusters, enabled flows, and pairs that get heartbeats. Precedence is MirrorMaker 2's:
`A->B.key` over `key`; of a client's keys, `A->B.source.consumer.key` over `A.consumer.key` over
`A->B.consumer.key` over `A.key` over `key`. Rules kept: all mistakes are told at once, each with
key and remedy; a key that is unknown or has no effect is a note. Source: KIP-382, KIP-710, and
MirrorMaker 2's `MirrorMakerConfig`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

import msgspec

from anabranch.core.mirror.filters import BadPattern, NameFilter
from anabranch.core.mirror.keys import (
    BOOLEAN,
    CHOICES,
    CLIENT_CHOICES,
    CLIENT_KEYS,
    ENDS,
    FLOW_KEYS,
    FORWARDING_ADMIN,
    REFUSED,
    ROLES,
    SHARED,
    SHARED_PREFIXES,
    USUAL_CLASSES,
    WITHOUT_EFFECT,
    Key,
)
from anabranch.core.mirror.policy import DEFAULT_POLICY, IDENTITY_POLICY, Policy
from anabranch.core.settings.setting import is_true

ARROW = "->"
BOOTSTRAP = "bootstrap.servers"
LIKENESS = 0.7
BOOLEANS = frozenset({"true", "false"})
READ_COMMITTED = "read_committed"


class BadConfig(Exception):
    """A properties file that cannot be used; `faults` has a sentence for each mistake."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """One direction between two clusters. `settings` are its keys with defaults filled in, `source`
    and `target` the keys of the clients at either end."""

    source: str
    target: str
    settings: dict[str, str]
    source_client: dict[str, str]
    target_client: dict[str, str]

    @property
    def name(self) -> str:
        """As the properties file writes it."""
        return f"{self.source}{ARROW}{self.target}"

    @property
    def policy(self) -> Policy:
        """How topics are renamed."""
        separator = self.settings["replication.policy.separator"]
        internal = self.on("replication.policy.internal.topic.separator.enabled")
        return Policy(
            source=self.source,
            is_identity=self.settings["replication.policy.class"] == IDENTITY_POLICY,
            separator=separator,
            internal_separator=separator if internal else ".",
        )

    def on(self, key: str) -> bool:
        """Whether a setting is true."""
        return is_true(self.settings[key])

    def number(self, key: str) -> int:
        """A setting that is a whole number."""
        return int(self.settings[key])

    @property
    def topics(self) -> NameFilter:
        """Which topics are mirrored."""
        return NameFilter(self.settings["topics"], self.settings["topics.exclude"])

    @property
    def groups(self) -> NameFilter:
        """Whose offsets are translated."""
        return NameFilter(self.settings["groups"], self.settings["groups.exclude"])

    @property
    def configs(self) -> NameFilter:
        """Which settings of topics are mirrored."""
        return NameFilter(excluded=self.settings["config.properties.exclude"])

    @property
    def is_exactly_once(self) -> bool:
        """Whether records and positions are written in transactions."""
        return self.settings["exactly.once.source.support"] == "enabled"

    @property
    def read_committed(self) -> bool:
        """Whether aborted records are left out."""
        return self.source_client["isolation.level"] == READ_COMMITTED

    @property
    def from_latest(self) -> bool:
        """Whether a topic without a position begins at its end."""
        return self.source_client["auto.offset.reset"] == "latest"


class Pair(msgspec.Struct, frozen=True):
    """Two clusters of which the target gets heartbeats that name both."""

    source: str
    target: str
    target_client: dict[str, str]
    seconds: int
    replication_factor: int


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What a properties file says."""

    clusters: dict[str, dict[str, str]]
    """Alias -> the keys of every client of that cluster."""
    flows: tuple[Flow, ...]
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]


def read_config(keys: Mapping[str, str]) -> Config:
    """The flows of a properties file. Raises BadConfig."""
    return _Reader({key.strip(): text.strip() for key, text in keys.items()}).read()


class _Reader:
    def __init__(self, keys: dict[str, str]) -> None:
        self.keys = keys
        self.faults: list[str] = []
        self.aliases = [each.strip() for each in keys.get("clusters", "").split(",")]
        self.aliases = [each for each in dict.fromkeys(self.aliases) if each]

    def read(self) -> Config:
        if not self.aliases:
            raise BadConfig([self._no_clusters()])
        clusters = {alias: self._shared(alias) for alias in self.aliases}
        flows, pairs = [], []
        for source, target in self._all_pairs():
            settings = self._settings(source, target)
            flow = self._flow(source, target, settings, clusters)
            if is_true(settings["enabled"]):
                flows.append(flow)
                self._check_flow(flow)
            if is_true(settings["emit.heartbeats.enabled"]):
                pairs.append(self._pair(flow))
        self._check_aliases(clusters)
        if not flows and not self.faults:
            self.faults.append(
                f"No flow is enabled: write {self._example()}.enabled = true for one that is to be "
                "mirrored."
            )
        if self.faults:
            raise BadConfig(self.faults)
        used = {alias for flow in flows for alias in (flow.source, flow.target)}
        return Config(
            clusters=clusters,
            flows=tuple(flows),
            pairs=tuple(each for each in pairs if each.source in used and each.target in used),
            notes=tuple(self._notes()),
        )

    def _no_clusters(self) -> str:
        if "connector.class" in self.keys or "name" in self.keys:
            return (
                "This is the file of a connector, not of a dedicated mirror: write one with "
                "clusters = A, B, A.bootstrap.servers and A->B.enabled = true. Keys of the "
                "connector such as topics stay; source.cluster.alias becomes A, and "
                "source.cluster.bootstrap.servers becomes A.bootstrap.servers."
            )
        if BOOTSTRAP in self.keys:
            return (
                "clusters is missing; this looks like the file of a Connect worker or a client. "
                "Write clusters = A, B with A.bootstrap.servers and A->B.enabled = true."
            )
        return "clusters is missing: name the clusters, as in clusters = A, B."

    def _example(self) -> str:
        first, second = [*self.aliases, "A", "B"][:2]
        return f"{first}{ARROW}{second}"

    def _all_pairs(self) -> Iterator[tuple[str, str]]:
        for source in self.aliases:
            for target in self.aliases:
                if source != target:
                    yield source, target

    def _shared(self, alias: str) -> dict[str, str]:
        top = {key: text for key, text in self.keys.items() if _is_shared(key)}
        own = {
            key.removeprefix(f"{alias}."): text
            for key, text in self.keys.items()
            if key.startswith(f"{alias}.")
        }
        return {**top, **{key: text for key, text in own.items() if _is_shared(key)}}

    def _settings(self, source: str, target: str) -> dict[str, str]:
        prefix = f"{source}{ARROW}{target}."
        found = {}
        for name, key in FLOW_KEYS.items():
            places = [f"{prefix}{name}"]
            if name in ("exactly.once.source.support", "offset.storage.replication.factor",
                        "offset.storage.partitions", "offset.flush.interval.ms"):  # fmt: skip
                places.append(f"{target}.{name}")
            if name != "enabled":
                places.append(name)
            place = next((each for each in places if each in self.keys), "")
            text = self.keys.get(place, key.default)
            self._check(place, text, key, CHOICES.get(name))
            found[name] = text
        for name, instead in REFUSED.items():
            for place in (f"{prefix}{name}", name):
                text = self.keys.get(place, "")
                if text and not text.startswith(USUAL_CLASSES) and text != FORWARDING_ADMIN:
                    self._fault(f"{place} = {text}: Java classes cannot be loaded here; {instead}.")
        return found

    def _check(self, place: str, text: str, key: Key, choices: tuple[str, ...] | None) -> None:
        if not place:
            return
        if choices is not None and text not in choices:
            allowed = ", ".join(each or "(empty)" for each in choices)
            self._fault(f"{place} = {text}: allowed: {allowed}.")
        elif key.kind == BOOLEAN and text.lower() not in BOOLEANS:
            self._fault(f"{place} = {text}: write true or false.")
        elif isinstance(key.kind, int):
            try:
                is_allowed = key.kind <= int(text) <= (1 << 31) - 1
            except ValueError:
                is_allowed = False
            if not is_allowed:
                self._fault(f"{place} = {text}: write a whole number of at least {key.kind}.")

    def _fault(self, sentence: str) -> None:
        if sentence not in self.faults:
            self.faults.append(sentence)

    def _flow(
        self, source: str, target: str, settings: dict[str, str],
        clusters: Mapping[str, dict[str, str]],
    ) -> Flow:  # fmt: skip
        return Flow(
            source=source,
            target=target,
            settings=settings,
            source_client=self._client(source, target, "source", "consumer", clusters[source]),
            target_client=self._client(source, target, "target", "producer", clusters[target]),
        )

    def _client(
        self, source: str, target: str, end: str, role: str, shared: Mapping[str, str]
    ) -> dict[str, str]:
        alias, flow = (source if end == "source" else target), f"{source}{ARROW}{target}"
        found = {name: key.default for name, key in CLIENT_KEYS.items()} | dict(shared)
        for prefix in (f"{flow}.{role}.", f"{alias}.{role}.", f"{flow}.{end}.{role}."):
            for place, text in self.keys.items():
                if place.startswith(prefix):
                    name = place.removeprefix(prefix)
                    self._check(
                        place, text, CLIENT_KEYS.get(name, Key("")), CLIENT_CHOICES.get(name)
                    )
                    found[name] = text
        return found

    def _check_flow(self, flow: Flow) -> None:
        policy = flow.settings["replication.policy.class"]
        if policy not in (DEFAULT_POLICY, IDENTITY_POLICY):
            self._fault(
                f"{flow.name}: replication.policy.class = {policy}: Java classes cannot be loaded "
                f"here; allowed: {DEFAULT_POLICY}, {IDENTITY_POLICY}."
            )
        if not flow.settings["replication.policy.separator"]:
            self._fault(f"{flow.name}: replication.policy.separator is empty; write one, as in `.`")
        for each in ("topics", "groups", "configs"):
            try:
                getattr(flow, each)
            except BadPattern as fault:
                self._fault(f"{flow.name}: {each}: {fault}.")
        if flow.is_exactly_once and not flow.read_committed:
            self._fault(
                f"{flow.name}: exactly.once.source.support = enabled needs "
                f"{flow.source}.consumer.isolation.level = read_committed: what the source aborts "
                "would be committed on the target otherwise."
            )

    def _check_aliases(self, clusters: Mapping[str, Mapping[str, str]]) -> None:
        for alias, shared in clusters.items():
            if not shared.get(BOOTSTRAP):
                self._fault(
                    f"{alias}.{BOOTSTRAP} is missing: write the brokers of cluster {alias} as "
                    "host:port, separated by commas."
                )
            if ARROW in alias or "." in alias:
                self._fault(f"clusters: {alias!r} must have neither `.` nor `->` in it.")
        for key in self.keys:
            pair, arrow, rest = key.partition(ARROW)
            target = rest.partition(".")[0]
            for alias in (pair, target) if arrow else ():
                if alias not in self.aliases:
                    self._fault(f"{key}: {alias!r} is not one of clusters{self._near(alias)}")

    def _near(self, alias: str) -> str:
        near = difflib.get_close_matches(alias, self.aliases, n=1)
        return f"; did you mean {near[0]}?" if near else f": {', '.join(self.aliases)}."

    def _pair(self, flow: Flow) -> Pair:
        return Pair(
            flow.source, flow.target, flow.target_client,
            _number(flow.settings["emit.heartbeats.interval.seconds"], 1),
            _number(flow.settings["heartbeats.topic.replication.factor"], 3),
        )  # fmt: skip

    def _notes(self) -> Iterator[str]:
        for key in self.keys:
            name, is_client = self._plain(key)
            if name is None or name in WITHOUT_EFFECT:
                why = WITHOUT_EFFECT.get(name or "", "")
                yield f"{key} has no effect: {why or _top_level(key)}."
            elif not is_client and not self._is_known(key, name):
                yield f"{key} is not a key of a mirror and is ignored{_nearest(name)}"
            elif is_client and name not in CLIENT_KEYS and not _is_shared(name):
                yield f"{key} has no effect: of a client's keys these have: {_effective()}."

    def _plain(self, key: str) -> tuple[str | None, bool]:
        """A key without its prefixes, and whether it is a client's; None for a client's key that
        belongs to no cluster."""
        _, arrow, rest = key.partition(ARROW)
        if arrow:
            rest = rest.partition(".")[2]
            for end in ENDS:
                if rest.startswith(end) and rest.removeprefix(end).startswith(ROLES):
                    rest = rest.removeprefix(end)
        else:
            alias, _, own = key.partition(".")
            if alias not in self.aliases:
                return (None, True) if key.startswith(ROLES) and key not in WITHOUT_EFFECT else (
                    key, False)  # fmt: skip
            rest = own
        for role in ROLES:
            if rest.startswith(role) and rest not in WITHOUT_EFFECT:
                return rest.removeprefix(role), True
        return rest, False

    def _is_known(self, key: str, name: str) -> bool:
        if key == "clusters" or key.startswith("config.providers"):
            return True
        return name in FLOW_KEYS or name in REFUSED or _is_shared(name)


def _number(text: str, otherwise: int) -> int:
    """A number that was found faulty before is not needed any more."""
    return int(text) if text.lstrip("-").isdigit() else otherwise


def _is_shared(key: str) -> bool:
    return key in SHARED or key.startswith(SHARED_PREFIXES)


def _top_level(key: str) -> str:
    return f"keys of clients belong to a cluster, as in A.{key}"


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, [*FLOW_KEYS, *SHARED, *REFUSED], n=1, cutoff=LIKENESS)
    return f"; did you mean {near[0]}?" if near else "."


def _effective() -> str:
    return ", ".join(sorted(CLIENT_KEYS))
