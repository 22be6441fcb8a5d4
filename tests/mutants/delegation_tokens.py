"""Broken rules of delegation tokens: tests and schedules catch them."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

PLANS = "tests/core/controller/test_delegation_tokens.py"
LOGINS = "tests/core/access/test_delegation_tokens.py"
REQUESTS = "tests/core/api/test_token_requests.py"
ROOM = "anabranch.core.controller.delegation_tokens"
INDEX = "anabranch.core.controller.token_index"
FOUND = "tests/core/controller/test_token_index.py::test_it_finds_what_a_scan_of_all_tokens_finds"


def mutant(name: str, rule: str, module: str, old: str, new: str, caught_by: str) -> Mutant:
    """One that a test catches."""
    return Mutant(name, rule, module, old, new, NO_SCHEDULE, caught_by)


MUTANTS = (
    mutant(
        "token-any-lifetime",
        "no token outlives the longest lifetime",
        ROOM,
        "min(most_ms, lifetime_ms) if lifetime_ms > 0 else most_ms)",
        "lifetime_ms if lifetime_ms > 0 else most_ms)",
        f"{PLANS}::test_a_token_lives_no_longer_than_allowed",
    ),
    mutant(
        "token-renewed-beyond-maximum",
        "no renewal passes a token's maximum",
        ROOM,
        "return replace(token, expiry_ms=min(token.max_ms, _later(wall_ms, for_ms)))",
        "return replace(token, expiry_ms=_later(wall_ms, for_ms))",
        f"{PLANS}::test_no_renewal_passes_the_maximum",
    ),
    mutant(
        "token-any-owner-type",
        "only users own tokens: who logs in with one is a user",
        ROOM,
        "if any(each.type != USER for each in (owner, *renewers)):",
        "if any(each.type != USER for each in renewers):",
        f"{PLANS}::test_names_that_no_record_or_login_can_have_are_refused",
    ),
    mutant(
        "token-any-number-of-renewers",
        "no token has so many renewers that nodes suffer",
        ROOM,
        "if len(renewers) > MOST_RENEWERS or any(",
        "if any(",
        f"{PLANS}::test_names_that_no_record_or_login_can_have_are_refused",
    ),
    mutant(
        "token-renewed-when-over",
        "a token that is over is not renewed",
        ROOM,
        "    if token.is_over(wall_ms):\n        raise ClientFault(ErrorCode.DELEGATION_TOKEN_EXPIRED)\n"
        "    _check_renewer(token, who)",
        "    _check_renewer(token, who)",
        f"{PLANS}::test_who_may_end_it_and_how",
    ),
    mutant(
        "token-anyone-renews",
        "only a token's owner and its renewers may renew it",
        ROOM,
        "if not token.may_renew(who):",
        "if False:",
        f"{PLANS}::test_who_may_end_it_and_how",
    ),
    mutant(
        "token-requester-renews",
        "who asked for a token of another does not renew it",
        "anabranch.core.access.delegation_tokens",
        "return principal == self.owner or principal in self.renewers",
        "return principal in (self.owner, self.requester) or principal in self.renewers",
        f"{LOGINS}::test_rights_to_a_token",
    ),
    mutant(
        "token-not-removed",
        "the active controller removes tokens that are over",
        "anabranch.core.controller.duties",
        "if result is None and state.image.tokens:",
        "if False:",
        f"{PLANS}::test_what_is_over_is_removed_in_time",
    ),
    mutant(
        "token-removed-early",
        "a token that is good is not removed",
        INDEX,
        "if token is not None and token.is_over(wall_ms):",
        "if token is not None:",
        f"{PLANS}::test_what_is_over_is_removed_in_time",
    ),
    mutant(
        "token-found-by-a-prefix",
        "an HMAC counts as a whole",
        INDEX,
        "if token_id is None or not hmac.compare_digest(self._hmac(token_id), token_hmac):",
        "if token_id is None:",
        FOUND,
    ),
    mutant(
        "token-index-not-followed",
        "a token that was made since the term began is found",
        INDEX,
        "                self._ids[prefix] = token_id\n",
        "                pass\n",
        FOUND,
    ),
    mutant(
        "token-end-forgotten",
        "a token that is over is told until it is removed",
        INDEX,
        "        for token_id, token in found.items():  # until they are removed\n",
        "        for token_id, token in ():\n",
        FOUND,
    ),
    mutant(
        "token-most-forgotten",
        "tokens are removed in bounded pieces, one soon after the other",
        ROOM,
        "for each in over[:MOST_RECORDS]",
        "for each in over",
        f"{PLANS}::test_many_are_removed_in_pieces",
    ),
    mutant(
        "token-by-token",
        "who came with a token gets no other one",
        "anabranch.core.api.tokens",
        "if not is_shown or is_by_token:",
        "if not is_shown:",
        f"{REQUESTS}::test_only_who_has_shown_who_it_is_without_a_token",
    ),
    mutant(
        "token-for-nobody",
        "a client that has not logged in gets no token",
        "anabranch.core.api.tokens",
        "if not is_shown or is_by_token:",
        "if is_by_token:",
        f"{REQUESTS}::test_only_who_has_shown_who_it_is_without_a_token",
    ),
    mutant(
        "token-of-any-owner",
        "a token of another owner needs the right to make such",
        "anabranch.core.api.tokens",
        "if owner != request.principal and not may(",
        "if False and not may(",
        f"{REQUESTS}::test_a_token_of_another_owner_needs_a_right",
    ),
    mutant(
        "token-seen-by-all",
        "who has nothing to do with a token needs a right to see it",
        "anabranch.core.api.p41_describe_delegation_token",
        "        request.principal in token.people\n        or",
        "        True\n        or",
        f"{REQUESTS}::test_who_sees_which_tokens",
    ),
    mutant(
        "token-login-when-over",
        "a token that is over lets no one in",
        "anabranch.core.access.scram_server",
        "if token.ends_ms < wall_ms:",
        "if False:",
        f"{LOGINS}::test_another_password_or_id_or_one_that_is_over_is_refused",
    ),
    mutant(
        "token-login-for-good",
        "a session by token ends with the token",
        "anabranch.core.access.scram_server",
        "begun.token.owner, begun.token.ends_ms, is_by_token=True",
        "begun.token.owner, NO_TIME_MS, is_by_token=True",
        f"{LOGINS}::test_who_has_a_token_comes_as_its_owner_until_its_end",
    ),
    mutant(
        "token-login-unmarked",
        "a session by token is known as one",
        "anabranch.core.access.scram_server",
        "begun.token.owner, begun.token.ends_ms, is_by_token=True",
        "begun.token.owner, begun.token.ends_ms",
        f"{LOGINS}::test_who_has_a_token_comes_as_its_owner_until_its_end",
    ),
    mutant(
        "token-of-a-user",
        "a user's password is none of a token of the same name",
        "anabranch.core.access.scram_server",
        "known = self._find(name) if token is None else token.credential",
        "known = self._find(name) or (token and token.credential)",
        f"{LOGINS}::test_a_users_password_is_none_of_a_token_of_that_name",
    ),
    mutant(
        "token-stays-in-image",
        "a removed token is gone from the image",
        "anabranch.core.metadata.concerns.delegation_tokens",
        "        del tokens[record.token_id]",
        "        pass",
        f"{PLANS}::test_who_may_end_it_and_how",
    ),
    Mutant(
        name="token-snapshot-without-shared",
        rule="a snapshot has the tokens that others may renew",
        module="anabranch.core.metadata.concerns.delegation_tokens",
        old="in sorted(image.tokens.items()):\n",
        new="in sorted(image.tokens.items()):\n        if token.renewers:\n            continue\n",
        seed=1010,
        caught_by="A6",
    ),
    Mutant(
        name="token-of-its-requester",
        rule="a token made for another is that one's",
        module="anabranch.core.metadata.concerns.delegation_tokens",
        old="owner=principal_of(record.owner)",
        new="owner=principal_of(record.requester)",
        seed=1010,
        caught_by="A6",
    ),
    Mutant(
        name="token-end-beyond-maximum",
        rule="who lets a token end cannot make it live beyond its maximum",
        module=ROOM,
        old="return replace(token, expiry_ms=min(token.max_ms, _later(wall_ms, period_ms)))",
        new="return replace(token, expiry_ms=_later(wall_ms, period_ms))",
        seed=1058,
        caught_by="A5",
    ),
    Mutant(
        name="token-login-until-maximum",
        rule="a token that was not renewed lets no one in, though it could have been",
        module="anabranch.core.access.delegation_tokens",
        old="token.owner.name, token.end_ms)",
        new="token.owner.name, token.max_ms)",
        seed=1010,
        caught_by="A7",
    ),
    Mutant(
        name="token-found-once",
        rule="a login looks a token up in the newest image",
        module="anabranch.core.access.delegation_tokens",
        old="    def find(token_id: str)",
        new="    @lru_cache(KEPT_CREDENTIALS)\n    def find(token_id: str)",
        seed=1010,
        caught_by="A7",
    ),
    Mutant(
        name="token-removed-once",
        rule="a controller looks for tokens that are over again and again",
        module=ROOM,
        old="self.due_ms = now_ms + (AFTER_A_HIT_MS if goes_on else interval_ms)",
        new="self.due_ms = now_ms + AFTER_A_HIT_MS if goes_on else 2**62",
        seed=1010,
        caught_by="liveness",
    ),
)
