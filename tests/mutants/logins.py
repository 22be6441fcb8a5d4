"""Broken rules of logins: tests catch them."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

SCRAM = "tests/core/access/test_scram_server.py"
PLAIN = "tests/core/access/test_plain.py"
LOGINS = "tests/core/broker/test_authentication.py"
USERS = "tests/core/controller/test_scram.py"
TLS = "tests/server/test_tls_transport.py"
ROOM = "anabranch.core.access"


def mutant(name: str, rule: str, module: str, old: str, new: str, caught_by: str) -> Mutant:
    """One that a test catches."""
    return Mutant(name, rule, module, old, new, NO_SCHEDULE, caught_by)


MUTANTS = (
    mutant(
        "login-any-proof",
        "a proof is that of the password",
        f"{ROOM}.scram_server",
        "return hmac.compare_digest(stored_key, credential.stored_key)",
        "return True",
        f"{SCRAM}::test_an_unknown_user_cannot_be_told_from_a_wrong_password",
    ),
    mutant(
        "login-decoy",
        "an unknown user is not let in, whatever it proves",
        f"{ROOM}.scram_server",
        " or not begun.is_known:",
        ":",
        f"{SCRAM}::test_a_decoy_is_never_let_in",
    ),
    mutant(
        "login-decoy-of-one-node",
        "an unknown user seems to have the same salt on every node",
        f"{ROOM}.scram_server",
        "key = self._key if self._model is None else self._model.server_key",
        "key = self._key",
        f"{SCRAM}::test_nodes_agree_on_what_an_unknown_user_has",
    ),
    mutant(
        "login-replay",
        "a proof is good for the nonce of its login",
        f"{ROOM}.scram_server",
        'if not hmac.compare_digest(found["nonce"], begun.nonce):',
        "if False:",
        f"{SCRAM}::test_a_proof_is_good_for_one_login",
    ),
    mutant(
        "login-channel",
        "the last message repeats how the first began",
        f"{ROOM}.scram_server",
        'found is None or found["channel"] != begun.channel',
        "found is None",
        f"{SCRAM}::test_the_last_message_repeats_how_the_first_began",
    ),
    mutant(
        "login-iterations",
        "an unknown user seems to have as many iterations as others",
        f"{ROOM}.scram_server",
        "iterations = ITERATIONS[0] if model is None else model.iterations",
        "iterations = ITERATIONS[0]",
        f"{SCRAM}::test_an_unknown_user_cannot_be_told_from_a_wrong_password",
    ),
    mutant(
        "login-after-the-end",
        "nothing follows the last message",
        f"{ROOM}.scram_server",
        "state, self._state = self._state, _State.OVER",
        "state = self._state",
        f"{SCRAM}::test_nothing_follows_the_end",
    ),
    mutant(
        "login-plain-unknown",
        "an unknown user and a wrong password get the same answer",
        f"{ROOM}.plain",
        'password ({name!r})", WRONG)',
        'password ({name!r})", "unknown" if known is None else WRONG)',
        f"{PLAIN}::test_an_unknown_user_cannot_be_told_from_a_wrong_password",
    ),
    mutant(
        "login-identity",
        "a user does not act as another",
        f"{ROOM}.plain",
        'if identity not in ("", name):',
        "if False:",
        f"{PLAIN}::test_what_is_no_login_is_told_so",
    ),
    mutant(
        "login-another-user",
        "a session that is renewed stays whose it was",
        "anabranch.core.broker.authentication",
        "if session.is_begun and session.principal != principal:",
        "if False:",
        f"{LOGINS}::test_any_order_of_logins_and_requests",
    ),
    mutant(
        "login-order",
        "a login is not begun in the midst of another",
        "anabranch.core.broker.authentication",
        "if session.login is not None:",
        "if False:",
        f"{LOGINS}::test_another_order_closes",
    ),
    mutant(
        "login-for-ever",
        "a login is good for connections.max.reauth.ms",
        "anabranch.core.broker.authentication",
        "expires_ms = clock.steady_ms + lifetime_ms if lifetime_ms else NO_TIME_MS",
        "expires_ms = NO_TIME_MS",
        f"{LOGINS}::test_any_order_of_logins_and_requests",
    ),
    mutant(
        "login-guess-fast",
        "a refusal waits",
        "anabranch.core.broker.authentication",
        "if delay_ms <= 0:",
        "if True:",
        f"{LOGINS}::test_a_refusal_is_answered_after_a_while_and_then_the_connection_is_closed",
    ),
    mutant(
        "login-behind-a-refusal",
        "what comes behind a refusal is not run",
        "anabranch.core.broker.authentication",
        "lambda _now_ms, _expired: outcome, holds_up=True)",
        "lambda _now_ms, _expired: outcome)",
        f"{LOGINS}::test_a_refusal_is_answered_after_a_while_and_then_the_connection_is_closed",
    ),
    mutant(
        "login-refusal-unsent",
        "a refusal is sent before the connection is closed",
        "anabranch.core.node.channel",
        "            if slot.buffers:\n                self._promise(slot.buffers)\n            if slot.hang_up:",
        "            if slot.buffers and not slot.hang_up:\n"
        "                self._promise(slot.buffers)\n            if slot.hang_up:",
        f"{LOGINS}::test_another_mechanism_is_answered_with_those_there_are",
    ),
    mutant(
        "users-twice",
        "a credential is not changed twice in a request",
        "anabranch.core.controller.scram",
        "times[each.mechanism, each.name] > 1",
        "False",
        f"{USERS}::test_what_is_answered",
    ),
    mutant(
        "users-in-part",
        "a user with a change that cannot be made keeps all its credentials",
        "anabranch.core.controller.scram",
        "found[each.name] = found.get(each.name) or fault",
        "found[each.name] = fault",
        f"{USERS}::test_one_change_that_cannot_be_made_leaves_the_others_of_the_user",
    ),
    mutant(
        "tls-unwanted-client",
        "a client that may not stay is let go after its handshake",
        "anabranch.server.tls_transport",
        "        if why:\n            self._failed(why)\n            self.abort()\n            return\n",
        "",
        f"{TLS}::test_a_client_that_may_not_stay_is_let_go_after_its_handshake",
    ),
)
