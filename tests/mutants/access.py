"""Broken rules of access control: tests and schedules catch them."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

AUTHORIZER = "tests/core/access/test_standard_authorizer.py"
EXAMPLES = f"{AUTHORIZER}::test_the_rules_by_example"
ROOM = "anabranch.core.access"


def mutant(name: str, rule: str, module: str, old: str, new: str, caught_by: str) -> Mutant:
    """One that a test catches."""
    return Mutant(name, rule, module, old, new, NO_SCHEDULE, caught_by)


MUTANTS = (
    mutant(
        "access-allow-before-deny",
        "a DENY that applies wins over each ALLOW",
        f"{ROOM}.standard_authorizer",
        "                elif acl.operation in (ALL, operation):\n                    return False",
        "                elif acl.operation in (ALL, operation) and not is_allowed:\n"
        "                    return False",
        EXAMPLES,
    ),
    mutant(
        "access-deny-implies",
        "a DENY of READ does not deny DESCRIBE",
        f"{ROOM}.standard_authorizer",
        "                elif acl.operation in (ALL, operation):",
        "                elif acl.operation in allowing:",
        EXAMPLES,
    ),
    mutant(
        "access-open-before-loaded",
        "nobody is let in before the rules are loaded",
        f"{ROOM}.standard_authorizer",
        "        if acls is None:\n            return False",
        "        if acls is None:\n            return self._open_without_acl",
        f"{AUTHORIZER}::test_before_the_rules_are_loaded_only_super_users_are_let_in",
    ),
    mutant(
        "access-old-decisions-stay",
        "a changed rule counts at once",
        f"{ROOM}.standard_authorizer",
        "if acls is not self._decided_by or",
        "if self._decided_by is None or",
        f"{AUTHORIZER}::test_each_change_of_a_rule_counts_at_once",
    ),
    mutant(
        "access-decisions-grow",
        "kept decisions are bounded",
        f"{ROOM}.standard_authorizer",
        " or len(self._decisions) >= KEPT_DECISIONS:",
        ":",
        f"{AUTHORIZER}::test_kept_decisions_are_bounded",
    ),
    mutant(
        "access-prefixes-forgotten",
        "a prefix counts until its last rule is gone",
        f"{ROOM}.acls",
        "        if not principals:\n            self._count(acl, -1)",
        "        self._count(acl, -1)",
        "tests/core/access/test_acls.py::test_indexes_follow_the_rules",
    ),
    mutant(
        "access-envelopes-are-trusted",
        "what a broker forwards for a client is no request of a node",
        "anabranch.core.api.p58_envelope",
        "        listener=NO_LISTENER,",
        "        listener=request.listener,",
        "tests/core/api/test_acl_requests.py"
        "::test_what_is_forwarded_is_not_trusted_as_its_sender_is",
    ),
    mutant(
        "access-rule-made-twice",
        "a rule that exists is not made again",
        "anabranch.core.api.p30_create_acls",
        "if acl not in added and not exists(acls, acl):",
        "if acl not in added:",
        "tests/core/api/test_acl_requests.py::test_what_is_made_is_there_until_a_filter_removes_it",
    ),
    mutant(
        "access-snapshot-without-acls",
        "a snapshot has the access rules",
        "anabranch.core.metadata.concerns.acls",
        "sorted(image.acls.by_id.items())",
        "sorted(image.acls.by_id.items())[1:]",
        "tests/core/metadata/test_security_records.py"
        "::test_replay_and_snapshots_keep_what_the_records_mean",
    ),
    Mutant(
        name="access-decisions-outlive-their-rules",
        rule="a decision is kept no longer than the rules it was made by",
        module=f"{ROOM}.standard_authorizer",
        old="self._decided_by, self._decisions = acls, {}",
        new="self._decided_by = acls",
        seed=1002,
        caught_by="A3",
    ),
    Mutant(
        name="access-open-before-metadata",
        rule="a node that has followed nothing allows nothing",
        module="anabranch.core.broker.authorizer",
        old="lambda: known.acls if (known := image()).offset >= 0 else None",
        new="lambda: image().acls",
        seed=1002,
        caught_by="A3",
    ),
    Mutant(
        name="access-removed-rule-decides",
        rule="a rule that was removed decides no more",
        module=f"{ROOM}.acls",
        old="        _keep(self._by_resource, acl.resource, principals)\n",
        new="        if not principals:\n            _keep(self._by_resource, acl.resource, principals)\n",
        seed=1002,
        caught_by="A3",
    ),
    Mutant(
        name="access-snapshot-without-denials",
        rule="a snapshot has the rules that deny",
        module="anabranch.core.metadata.concerns.acls",
        old="in sorted(image.acls.by_id.items()):\n",
        new="in sorted(image.acls.by_id.items()):\n        if acl.permission == 2:\n            continue\n",
        seed=1002,
        caught_by="A2",
    ),
    Mutant(
        name="access-snapshot-with-one-user",
        rule="a snapshot has the credentials of all users",
        module="anabranch.core.metadata.concerns.scram",
        old="sorted(image.scram.items()):",
        new="sorted(image.scram.items())[:1]:",
        seed=2000001002,
        caught_by="A2",
    ),
    Mutant(
        name="access-removed-user-logs-in",
        rule="a credential that was removed is gone",
        module="anabranch.core.metadata.concerns.scram",
        old="    del credentials[key]\n",
        new="    pass\n",
        seed=1002,
        caught_by="A2",
    ),
    Mutant(
        name="access-denial-made-twice",
        rule="a rule that denies and exists is not made again",
        module="anabranch.core.api.p30_create_acls",
        old="        if acl not in added and not exists(acls, acl):",
        new="        if acl not in added and (acl.permission == 2 or not exists(acls, acl)):",
        seed=4000001002,
        caught_by="A1",
    ),
    Mutant(
        name="quota-snapshot-without-defaults",
        rule="a snapshot has the quotas of defaults",
        module="anabranch.core.metadata.concerns.client_quotas",
        old="        for key, value in sorted(values.items()):",
        new="        if any(name is None for _, name in entity):\n            continue\n        for key, value in sorted(values.items()):",
        seed=1002,
        caught_by="A2",
    ),
    Mutant(
        name="quota-of-the-first-image-stays",
        rule="a broker limits clients by the quotas of its newest image",
        module="anabranch.core.api.context",
        old="self.client_quotas.follow(self.image.quotas) else None",
        new="published or self.client_quotas.follow(self.image.quotas) else None",
        seed=1002,
        caught_by="A3",
    ),
)
