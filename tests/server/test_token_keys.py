"""Keys that sign tokens: which signatures are good, when keys are read again, what is refused."""

from __future__ import annotations

import base64
import functools
import hmac
import json
import socket

import pytest
from compat.token_provider import ALGORITHMS, claims_of, new_key, provider, signed, unsecured
from hypothesis import given, settings
from hypothesis import strategies as some
from joserfc import jwk, jws

from anabranch.core.access.bearer import TokenRefused, TokenRules
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.listener_tokens import TokenSettings
from anabranch.core.settings.listeners import Listener
from anabranch.core.settings.setting import ConfigFault
from anabranch.server import listener_security, token_keys
from anabranch.server.listener_security import ListenerSecurity
from anabranch.server.token_keys import MOST_TRIED, RETRY_MS, KeysFault, TokenKeys, keys_of

CLAIMS = claims_of()


@functools.cache
def key(kind, name):
    return new_key(kind, name)


def key_set(*keys):
    return {"keys": [each.as_dict(private=False) for each in keys]}


class Clock:
    """A steady clock that a test sets."""

    def __init__(self):
        self.now_ms = 1_000_000

    def __call__(self):
        return self.now_ms


def keys_at(url, refresh_ms=60_000):
    clock = Clock()
    found = TokenKeys(TokenSettings(TokenRules(), url, refresh_ms, 2_000, 2_000), now_ms=clock)
    return found, clock


def keys_in(folder, *keys):
    path = folder / "jwks.json"
    path.write_text(json.dumps(key_set(*keys)))
    found, _ = keys_at(path.as_uri())
    found.reload()
    return found


def read(keys, token):
    """The claims of a good token; why another is refused."""
    try:
        return keys.verify(token)
    except TokenRefused as refused:
        return {"sub": f"refused: {refused}"}


def why(keys, token):
    with pytest.raises(TokenRefused) as refused:
        keys.verify(token)
    for part in token.split("."):
        assert len(part) < 10 or part not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", ["a", None])
def test_each_algorithm_with_public_keys_is_good(tmp_path, algorithm, name):
    own = key(ALGORITHMS[algorithm], name)
    others = [key(kind, "other") for kind in set(ALGORITHMS.values())]
    keys = keys_in(tmp_path, *others, own)
    assert read(keys, signed(own, algorithm, CLAIMS)) == CLAIMS
    stranger = new_key(ALGORITHMS[algorithm], name)
    assert "signature" in why(keys, signed(stranger, algorithm, CLAIMS))


@settings(max_examples=150, deadline=None)
@given(
    algorithm=some.sampled_from(list(ALGORITHMS)),
    at=some.floats(0, 1, exclude_max=True),
    bit=some.integers(1, 255),
)
def test_no_changed_byte_is_good(kept, algorithm, at, bit):
    own = key(ALGORITHMS[algorithm], "a")
    header, payload, signature = (
        base64.urlsafe_b64decode(each + "==")
        for each in signed(own, algorithm, {**CLAIMS, "of": algorithm}).split(".")
    )
    data = bytearray(header + payload + signature)
    data[int(at * len(data))] ^= bit
    parts = data[: len(header)], data[len(header) :][: len(payload)], data[-len(signature) :]
    token = ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts)
    why(kept, token)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    kinds = set(ALGORITHMS.values())
    return keys_in(tmp_path_factory.mktemp("keys"), *(key(each, "a") for each in kinds))


def with_header(token, **changed):
    """The same signature below another header."""
    header, payload, signature = token.split(".")
    found = {**json.loads(base64.urlsafe_b64decode(header + "==")), **changed}
    text = base64.urlsafe_b64encode(json.dumps(found).encode()).rstrip(b"=").decode()
    return f"{text}.{payload}.{signature}"


def test_a_token_that_chooses_how_it_is_checked_is_refused(tmp_path):
    own = key("RSA", "a")
    keys = keys_in(tmp_path, own)
    good = signed(own, "RS256", CLAIMS)
    for algorithm, hashed in (("HS256", "sha256"), ("HS512", "sha512")):
        shared = with_header(good, alg=algorithm).rpartition(".")[0]
        proof = hmac.digest(own.as_pem(private=False), shared.encode(), hashed)
        proof = base64.urlsafe_b64encode(proof).rstrip(b"=").decode()
        assert "none with public keys" in why(keys, f"{shared}.{proof}")
    for header in ({"alg": "none", "kid": "a"}, {"alg": "None"}, {"alg": "NONE", "kid": "a"}):
        assert "no" in why(keys, unsecured(CLAIMS, header))
        why(keys, unsecured(CLAIMS, header) + good.rpartition(".")[2])
    for changed in (
        {"alg": "RS512"}, {"alg": "ES256"}, {"alg": ["RS256"]}, {"alg": None}, {"kid": "b"},
        {"kid": 7}, {"crit": ["x"], "x": 1}, {"b64": False, "crit": ["b64"]},
    ):  # fmt: skip
        why(keys, with_header(good, **changed))
    assert "no key 'b'" in why(keys, signed(own, "RS256", CLAIMS, kid="b"))
    stranger = new_key("RSA", "a")
    jwk_header = {"jwk": stranger.as_dict(private=False), "jku": "http://127.0.0.1:9/"}
    assert "signature" in why(keys, signed(stranger, "RS256", CLAIMS, **jwk_header))


def test_a_key_signs_with_its_own_algorithm_alone(tmp_path):
    own = jwk.RSAKey.generate_key(2048, {"kid": "a", "alg": "PS256"})
    keys = keys_in(tmp_path, own)
    assert read(keys, signed(own, "PS256", CLAIMS)) == CLAIMS
    plain = jwk.RSAKey.import_key(own.as_dict(private=True) | {"alg": "RS256"})
    assert "no key" in why(keys, signed(plain, "RS256", CLAIMS))


def test_headers_that_providers_add_do_no_harm(tmp_path):
    own = key("RSA", "a")
    token = signed(own, "RS256", CLAIMS, typ="at+jwt", nonce="x", x5t="y" * 600)
    assert read(keys_in(tmp_path, own), token) == CLAIMS


@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "...", "a.b.c", "a.b.c.d.e", "\ud7ff.x.y", "W10.W10.", "bnVsbA..", "[" * 100_000],
)  # fmt: skip
def test_what_is_no_token_is_refused(tmp_path, token):
    why(keys_in(tmp_path, key("RSA", "a")), token)


@pytest.mark.parametrize("payload", [b"[]", b"null", b"7", b"{", b"\xff", b"[" * 40_000, b""])
def test_what_has_no_claims_is_refused(tmp_path, payload):
    own = key("RSA", "a")
    assert "no claims" in why(keys_in(tmp_path, own), signed(own, "RS256", payload))


@given(some.binary(max_size=300) | some.text(alphabet="eyJ.-_{}[]AQ", max_size=80))
def test_any_text_is_refused(kept, data):
    text = data if isinstance(data, str) else data.decode("latin-1")
    why(kept, text)


def test_large_tokens_are_read(tmp_path):
    own = key("RSA", "a")
    claims = {**CLAIMS, "groups": ["g" * 100] * 400}
    token = signed(own, "RS256", claims, x5c=["c" * 2_000] * 3)
    assert read(keys_in(tmp_path, own), token) == claims and len(token) > 60_000
    assert "no signed token" in why(
        keys_in(tmp_path, own), signed(own, "RS256", claims, x="y" * 15_000)
    )


def test_a_token_is_checked_with_few_keys(tmp_path, monkeypatch):
    """A hundred for each token of a stranger would hold up all clients."""
    tried = []

    def counted(_signed, _key, _registry):
        tried.append(1)
        return False

    monkeypatch.setattr(token_keys, "_is_good", counted)
    same = [jwk.ECKey.generate_key("P-256", {"kid": "same"}) for _ in range(MOST_TRIED)]
    others = [jwk.ECKey.generate_key("P-256", {"kid": f"k{each}"}) for each in range(90)]
    keys = keys_in(tmp_path, *same, *others)
    stranger = jwk.ECKey.generate_key("P-256")
    said = why(keys, signed(stranger, "ES256", CLAIMS))
    assert not tried and said == "it does not tell which of 94 keys for ES256 signed it"
    why(keys, signed(stranger, "ES256", CLAIMS, kid="same"))
    assert len(tried) == MOST_TRIED
    why(keys, signed(stranger, "ES256", CLAIMS, kid="k7"))
    assert len(tried) == MOST_TRIED + 1


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[]", b'{"keys": []}', b'{"keys": {}}', b'{"keys": [7, null]}', b"[" * 100_000,
     b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', b'{"keys": [{"kty": "RSA"}]}',
     b'{"keys": [' + b"{}," * 200 + b"{}]}"],
)  # fmt: skip
def test_what_is_no_key_set_is_refused(text):
    with pytest.raises(KeysFault):
        keys_of(text)


def test_keys_that_do_not_sign_are_left_out():
    small = jwk.RSAKey.generate_key(1024, {"kid": "small"})
    other = jwk.RSAKey.generate_key(2048, {"kid": "enc", "use": "enc"})
    secret = jwk.OctKey.generate_key(256, {"kid": "secret"})
    listed = {"keys": [each.as_dict() for each in (small, other, secret, key("RSA", "a"))]}
    assert [each.kid for each in keys_of(json.dumps(listed).encode())] == ["a"]


def test_a_new_file_is_read_and_a_broken_one_is_not(tmp_path):
    first, second = key("RSA", "a"), key("P-256", "b")
    keys = keys_in(tmp_path, first)
    assert not keys.is_due
    (tmp_path / "jwks.json").write_text("broken")
    assert keys.is_due
    keys.reload()
    assert read(keys, signed(first, "RS256", CLAIMS)) == CLAIMS
    (tmp_path / "jwks.json").write_text(json.dumps(key_set(second)))
    assert keys.is_due
    keys.reload()
    assert read(keys, signed(second, "ES256", CLAIMS)) == CLAIMS
    why(keys, signed(first, "RS256", CLAIMS))


def test_an_address_is_asked_at_its_time_and_soon_for_a_key_that_is_not_there():
    with provider() as at:
        keys, clock = keys_at(at.url + "/keys?secret=x", refresh_ms=600_000)
        assert keys.is_due and "not known yet" in why(keys, at.token())
        keys.reload()
        assert read(keys, at.token())["sub"] == "alice" and not keys.is_due
        clock.now_ms += 599_999
        assert not keys.is_due
        clock.now_ms += 1
        assert keys.is_due
        keys.reload()
        at.key = new_key("RSA", "two")
        at.keys.append(at.key)
        assert "no key 'two'" in why(keys, at.token())
        assert not keys.is_due, "a stranger's tokens do not make the node ask all the time"
        clock.now_ms += RETRY_MS
        assert keys.is_due
        keys.reload()
        assert read(keys, at.token())["sub"] == "alice"


def test_an_address_that_fails_leaves_the_keys_and_is_told_once(monkeypatch):
    told = []

    class Log:
        def warning(self, text, **more):
            told.append((text, more))

    monkeypatch.setattr(token_keys, "LOG", Log())
    with provider() as at:
        keys, clock = keys_at(at.url + "/keys?secret=x")
        token = at.token()
        at.status = 503
        keys.reload()
        assert "not known yet" in why(keys, token)
        at.status = 200
        clock.now_ms += RETRY_MS
        keys.reload()
    for _ in range(3):
        clock.now_ms += 60_000
        assert keys.is_due
        keys.reload()
    assert read(keys, token)["sub"] == "alice"
    assert [text for text, _ in told] == ["every token is refused", "the keys of before stay"]
    assert "503" in str(told[0]) and "secret=x" not in str(told)


def test_an_address_without_keys_is_told_without_what_may_be_secret():
    with provider() as at:
        at.keys.clear()
        keys, _ = keys_at(at.url.replace("//", "//me:hunter2@") + "/keys?secret=x")
        with pytest.raises(KeysFault, match=f"{at.url}/keys: it has no public key") as fault:
            keys.read()
        assert "secret" not in str(fault.value) and "hunter2" not in str(fault.value)


def test_an_address_that_says_nothing_costs_its_time_alone():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        keys = TokenKeys(TokenSettings(TokenRules(), url, 60_000, 100, 100))
        with pytest.raises(KeysFault, match="timed out"):
            keys.read()


def test_the_registry_of_the_package_knows_each_algorithm():
    assert set(token_keys.KINDS) <= set(jws.JWSRegistry.algorithms)


def test_a_node_without_the_package_says_what_to_install(monkeypatch):
    texts = {
        "node.id": "1", "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": "https://idp/keys",
    }  # fmt: skip
    listener = Listener("CLIENTS", "127.0.0.1", 9092, "SASL_PLAINTEXT")
    settings = ListenerSettings(BrokerConfig.of(texts), listener)
    ListenerSecurity(settings)
    monkeypatch.setattr(listener_security, "HAS_PACKAGE", False)
    with pytest.raises(ConfigFault, match="pip install joserfc"):
        ListenerSecurity(settings)


@pytest.mark.parametrize(("text", "why"), [(None, "No such file"), ("{}", "no JSON Web Key Set")])
def test_keys_in_a_file_that_cannot_be_used_stop_the_start(tmp_path, text, why):
    path = tmp_path / "jwks.json"
    if text is not None:
        path.write_text(text)
    texts = {
        "node.id": "1", "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
    }  # fmt: skip
    listener = Listener("CLIENTS", "127.0.0.1", 9092, "SASL_PLAINTEXT")
    with pytest.raises(ConfigFault, match=why):
        ListenerSecurity(ListenerSettings(BrokerConfig.of(texts), listener))
