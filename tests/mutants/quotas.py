"""Broken rules of quotas: tests catch them."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

FOLDER = "tests/core/quotas"
ROOM = "anabranch.core.quotas"
RESTS = "tests/core/node/test_rests.py"
FETCH = "tests/core/api/test_p01_fetch.py"


def mutant(name: str, rule: str, module: str, old: str, new: str, caught_by: str) -> Mutant:
    """One that a test catches."""
    return Mutant(name, rule, module, old, new, NO_SCHEDULE, caught_by)


MUTANTS = (
    mutant(
        "quota-clients-before-users",
        "a quota of a user holds before one of a client id",
        f"{ROOM}.limits",
        '            return Limit(user, "", values[key])',
        "            break",
        f"{FOLDER}/test_limits.py::test_the_most_specific_quota_holds",
    ),
    mutant(
        "quota-default-shares-its-usage",
        "each user of a default quota has a usage of its own",
        f"{ROOM}.limits",
        "                    return Limit(user, client_id, values[key])",
        '                    return Limit(of_user or "", client_id, values[key])',
        f"{FOLDER}/test_limits.py::test_the_most_specific_quota_holds",
    ),
    mutant(
        "quota-looks-back-too-far",
        "what is older than the window counts no more",
        f"{ROOM}.rates",
        "        oldest_ms = now_ms - window.samples * window.sample_ms",
        "        oldest_ms = now_ms - 2 * window.samples * window.sample_ms",
        f"{FOLDER}/test_rates.py::test_a_rate_is_kafkas",
    ),
    mutant(
        "quota-first-second-is-all",
        "windows that have not been yet count as empty ones",
        f"{ROOM}.rates",
        "        elapsed_ms += max(0, missing) * window.sample_ms",
        "        elapsed_ms = max(elapsed_ms, window.sample_ms)",
        f"{FOLDER}/test_rates.py::test_a_rate_is_kafkas",
    ),
    mutant(
        "quota-bucket-overflows",
        "a bucket holds no more than all samples allow",
        f"{ROOM}.rates",
        "        self.tokens = min(most, self.tokens + limit * elapsed_ms / SECOND_MS)",
        "        self.tokens = self.tokens + limit * elapsed_ms / SECOND_MS",
        f"{FOLDER}/test_client_quotas.py::test_partitions_are_created_and_deleted_at_the_rate",
    ),
    mutant(
        "quota-refused-counts",
        "what is refused takes no tokens",
        f"{ROOM}.client_quotas",
        "            self._rest(rest_ms)\n            raise",
        "            self._rest(rest_ms)\n            bucket.take(partitions, *where)\n            raise",
        f"{FOLDER}/test_client_quotas.py::test_a_request_stops_where_the_quota_ends",
    ),
    mutant(
        "quota-older-versions-are-refused",
        "a version that does not know the error is served",
        f"{ROOM}.client_quotas",
        "request.version >= strict_since",
        "request.version >= 0",
        f"{FOLDER}/test_client_quotas.py::test_older_versions_are_served_and_told_to_rest",
    ),
    mutant(
        "quota-time-rests-for-long",
        "for its time a client rests for one sample at most",
        f"{ROOM}.client_quotas",
        "            rest_ms = min(rest_ms, self.window.sample_ms)",
        "            pass",
        f"{FOLDER}/test_client_quotas.py::"
        "test_each_client_rests_as_if_its_usage_alone_were_counted",
    ),
    mutant(
        "quota-large-batch-never-comes",
        "an answer that can never fit is sent when nothing else was",
        f"{ROOM}.client_quotas",
        "            return False\n",
        "            pass\n",
        f"{FOLDER}/test_client_quotas.py::"
        "test_each_client_rests_as_if_its_usage_alone_were_counted",
    ),
    mutant(
        "quota-usage-grows",
        "usage is bounded",
        f"{ROOM}.client_quotas",
        "        if len(usages) <= most and now_ms - idle.used_ms < IDLE_MS:",
        "        if now_ms - idle.used_ms < IDLE_MS:",
        f"{FOLDER}/test_client_quotas.py::test_usage_is_forgotten_after_an_hour_and_bounded",
    ),
    mutant(
        "quota-closed-ones-count",
        "a connection that is not let in is not counted",
        f"{ROOM}.connection_rates",
        "            rate.record(-1, now_ms, self._window)",
        "            pass",
        f"{FOLDER}/test_connection_rates.py::test_an_address_gets_its_rate_however_often_it_tries",
    ),
    mutant(
        "quota-answer-says-nothing",
        "an answer tells for how long its connection rests",
        "anabranch.core.node.outcomes",
        "            message = replace(message, throttle_time_ms=rest_ms)",
        "            pass",
        f"{RESTS}::test_an_answer_tells_how_long_its_connection_rests[wait]",
    ),
    mutant(
        "quota-told-but-not-kept",
        "a connection rests as long as its answer says",
        "anabranch.core.node.outcomes",
        "        mute(asker.session, rest_ms, self.steady_ms)",
        "        mute(asker.session, 0, self.steady_ms)",
        f"{RESTS}::test_the_next_request_is_run_when_the_rest_is_over_and_not_before",
    ),
    mutant(
        "quota-brokers-rest",
        "what brokers ask of each other is exempt",
        "anabranch.core.node.outcomes",
        "        if asker.is_broker and of_broker is not None and of_broker(request.body):",
        "        if False:",
        f"{RESTS}::test_what_brokers_ask_of_each_other_rests_for_nothing",
    ),
    mutant(
        "quota-news-are-lost",
        "what an emptied answer would have told is told later",
        "anabranch.core.api.fetch_sessions",
        "                    wanted.told_high_watermark = wanted.told_log_start = -1",
        "                    pass",
        f"{FETCH}::test_a_high_watermark_that_was_not_told_is_told_next",
    ),
    mutant(
        "quota-session-begins-empty",
        "no session begins with an emptied answer",
        "anabranch.core.api.p01_fetch",
        "        broker.fetch_sessions.close(response.session_id)\n        return FetchResponse()",
        "        return FetchResponse(session_id=response.session_id)",
        f"{FETCH}::test_a_session_does_not_begin_with_an_answer_that_is_over_its_quota",
    ),
)
