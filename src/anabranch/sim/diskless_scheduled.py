"""Broken rules of diskless topics that schedules of the simulator catch.

`seed` is of a schedule with diskless topics (`diskless_plan.py`). Not here: those that a test of
the one decision catches (`diskless_mutants.py`, `storage_mutants.py`).
"""

from __future__ import annotations

from anabranch.sim.mutants import Mutant

ROOM = "anabranch.core.diskless"

SCHEDULED = (
    Mutant(
        name="diskless-told-before-the-verdict",
        rule="a broker answers a diskless batch when it knows the verdict",
        module=f"{ROOM}.partition",
        old="        return ticket.code\n",
        new="        return ErrorCode.NONE\n",
        seed=100,
        caught_by="lost-write",
    ),
    Mutant(
        name="diskless-refused-object-told-as-taken",
        rule="batches of an object that was refused are not acknowledged",
        module=f"{ROOM}.writing",
        old="            self.counts.refused += 1\n"
        "            self._give_up(upload, ErrorCode.KAFKA_STORAGE_ERROR)\n",
        new="            self._give_up(upload, ErrorCode.NONE)\n",
        seed=116,
        caught_by="lost-write",
    ),
    Mutant(
        name="diskless-committed-while-it-is-put",
        rule="nothing is committed that the store does not have whole",
        module=f"{ROOM}.writing",
        old="if self.uploads and self.uploads[0].stage is Stage.STORED:",
        new="if self.uploads and self.uploads[0].stage in (Stage.STORED, Stage.PUTTING):",
        seed=108,
        caught_by="D2",
    ),
    Mutant(
        name="diskless-failed-put-committed",
        rule="an object whose put failed for good is not committed",
        module=f"{ROOM}.writing",
        old="        elif upload.attempts < PUT_ATTEMPTS - 1:\n",
        new="        elif upload.attempts:\n            self._put(upload, None, now_ms)\n"
        "        elif upload.attempts < PUT_ATTEMPTS - 1:\n",
        seed=180,
        caught_by="D2",
    ),
    Mutant(
        name="diskless-duplicate-written-again",
        rule="a batch of an idempotent producer that comes again gets its first offset",
        module=f"{ROOM}.commit",
        old="        for written in producer.written:\n"
        "            if written[:2] == sequences:\n"
        "                return Verdict(ErrorCode.NONE, written.base_offset, log.start_offset, "
        "True)\n"
        "        if batch.base_sequence != producer.next_sequence:\n",
        new="        if batch.base_sequence > producer.next_sequence:\n",
        seed=100,
        caught_by="D5",
    ),
    Mutant(
        name="diskless-gap-written",
        rule="a batch of an idempotent producer that leaves a gap is not written",
        module=f"{ROOM}.commit",
        old="        if batch.base_sequence != producer.next_sequence:\n",
        new="        if batch.base_sequence < producer.next_sequence:\n",
        seed=100,
        caught_by="D5",
    ),
    Mutant(
        name="diskless-garbage-without-grace",
        rule="an object that has lost its last row stays for the grace",
        module=f"{ROOM}.memory_coordinator",
        old="and each.marked_ms <= until_ms",
        new="and each.marked_ms <= until_ms + grace_ms",
        seed=100,
        caught_by="D7",
    ),
    Mutant(
        name="diskless-garbage-of-the-living",
        rule="a prepared object is no garbage while its lease runs",
        module=f"{ROOM}.memory_coordinator",
        old="            if found.state is ObjectState.PREPARED and now_ms >= found.expires_ms:\n",
        new="            if found.state is ObjectState.PREPARED and now_ms >= found.expires_ms "
        "- 590_000:\n",
        seed=100,
        caught_by="D7",
    ),
    Mutant(
        name="diskless-garbage-with-rows",
        rule="an object is garbage when its last row is gone, not its first",
        module=f"{ROOM}.memory_coordinator",
        old="            if not found.live_runs:\n                self._become(",
        new="            if True:\n                self._become(",
        seed=108,
        caught_by="D7",
    ),
    Mutant(
        name="diskless-expired-objects-stay",
        rule="objects whose lease is over are collected",
        module=f"{ROOM}.memory_coordinator",
        old="            if found.state is ObjectState.PREPARED and now_ms >= found.expires_ms:\n",
        new="            if False:\n",
        seed=100,
        caught_by="orphans",
    ),
    Mutant(
        name="diskless-stale-cache-tells-out-of-range",
        rule="what other brokers committed is asked for before an offset is out of range",
        module="anabranch.core.api.fetch_pass",
        old="                replica.know(self.since)\n",
        new="                pass\n",
        seed=156,
        caught_by="out-of-range",
    ),
    Mutant(
        name="diskless-old-epoch-commits",
        rule="an object is committed by the newest epoch of its broker alone",
        module=f"{ROOM}.commit",
        old="if broker_epoch != commit.broker_epoch:",
        new="if False:",
        seed=740,
        caught_by="D4",
    ),
    Mutant(
        name="diskless-commit-after-the-lease",
        rule="an object whose lease is over is not committed, however late its broker wakes",
        module=f"{ROOM}.commit",
        old="if found.state is not ObjectState.PREPARED or now_ms >= found.expires_ms:",
        new="if found.state is not ObjectState.PREPARED:",
        seed=772,
        caught_by="D3",
    ),
    Mutant(
        name="diskless-objects-overtake-each-other",
        rule="an object waits for those of its broker that were cut before it",
        module=f"{ROOM}.writing",
        old="        if self.uploads and self.uploads[0].stage is Stage.STORED:\n"
        "            upload = self.uploads[0]\n",
        new="        upload = next((u for u in self.uploads if u.stage is Stage.STORED), None)\n"
        "        if upload is not None:\n",
        seed=204,
        caught_by="D5",
    ),
)
