"""SaslHandshake (API key 17): a client names its SASL mechanism. KIP-43, KIP-152."""

from __future__ import annotations

from anabranch.core.wire.schema import Int16, Message, String


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: String = ""


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: Int16 = 0
    mechanisms: list[String] = []
