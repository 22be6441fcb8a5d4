"""Why a TLS handshake failed, in the words of people who look for the cause."""

from __future__ import annotations

import ssl

HOST_CODES = (62, 64)
"""OpenSSL's codes for a certificate of another host name or IP address."""
NOT_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE")
"""OpenSSL's words for an answer that is not TLS."""


CLOSINGS = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
CLOSED = (
    "closed the connection during the TLS handshake; unless its listener speaks TLS, set "
    "security.protocol to PLAINTEXT or SASL_PLAINTEXT"
)
"""What a node does to whom it takes for a client of another protocol, or while it stops."""


def why_not_secure(problem: ssl.SSLError, host: str) -> str:
    """What a TLS handshake that failed means, and what to do."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        if (
            "hostname mismatch" in problem.verify_message.lower()
            or problem.verify_code in HOST_CODES
        ):
            return (
                f"its certificate is not for {host}. Connect by a name that is in it, or set "
                "ssl.endpoint.identification.algorithm to nothing."
            )
        return (
            f"its certificate is not trusted ({problem.verify_message}). Give "
            "ssl.truststore.location the certificate of the authority that signed it."
        )
    if problem.reason in NOT_TLS:
        return "it does not speak TLS. Set security.protocol to PLAINTEXT or SASL_PLAINTEXT."
    return (
        f"the TLS handshake failed ({problem.reason or problem.strerror}). If it asks for a client "
        "certificate, give ssl.keystore.location one that it trusts."
    )


NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNEXPECTED_MESSAGE")
NO_TRUST = (
    "TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_CERTIFICATE_UNKNOWN", "SSLV3_ALERT_BAD_CERTIFICATE",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED", "TLSV1_ALERT_DECRYPT_ERROR",
)  # fmt: skip
OLD = ("UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "TLSV1_ALERT_PROTOCOL_VERSION")


def why_client_fails(problem: ssl.SSLError) -> str:
    """Why a client's handshake failed, as its node's operator needs it."""
    reason = problem.reason or ""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return (
            f"the client's certificate is not trusted ({problem.verify_message}); "
            "ssl.truststore.location must have the authority that signed it"
        )
    if reason in NO_TLS:
        return "the client does not speak TLS, and this listener does"
    if reason in NO_TRUST:
        return (
            f"the client does not accept this node's certificate ({reason}); its truststore must "
            "have the authority that signed it"
        )
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client shows no certificate, and ssl.client.auth is required"
    if reason in OLD:
        return "the client speaks no version of TLS that ssl.enabled.protocols has"
    return f"the TLS handshake failed ({reason or type(problem).__name__})"
