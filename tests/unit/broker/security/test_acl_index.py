"""Decisions by access control lists: every rule by itself, and all of them against a plain reading of the lists."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.security.acl_index import AclIndex, Entries, principal_of
from oncelog.protocol.acl import (
    EVERYONE,
    OPERATIONS,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
    pattern_matches,
)

ALICE = ("User", "alice")
HERE = "127.0.0.1"


def rule(text: str) -> AclBinding:
    """``allow alice READ t``; ``deny alice@10.0.0.1 ALL t*``, where a star at the end of a longer name is a prefix."""
    permission, who, operation, name = text.split()
    principal, _, host = who.partition("@")
    is_prefix = len(name) > 1 and name.endswith("*")
    pattern = ResourcePattern(
        AclResourceType.TOPIC,
        name[:-1] if is_prefix else name,
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
    )
    entry = AccessControlEntry(
        principal if ":" in principal else f"User:{principal}",
        host or WILDCARD,
        AclOperation[operation],
        AclPermissionType[permission.upper()],
    )
    return AclBinding(pattern, entry)


def by_pattern(bindings: Iterable[AclBinding]) -> dict[ResourcePattern, Entries]:
    gathered: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for binding in bindings:
        gathered.setdefault(binding.pattern, set()).add(binding.entry)
    return {pattern: frozenset(entries) for pattern, entries in gathered.items()}


def index_of(*rules: str) -> AclIndex:
    return AclIndex().changed(by_pattern(map(rule, rules)))


def allows(index: AclIndex, operation: str, name: str = "orders", host: str = HERE) -> bool:
    return bool((index.allowed(ALICE, host, AclResourceType.TOPIC, name) or 0) & 1 << AclOperation[operation])


@pytest.mark.parametrize(
    ("rules", "operation", "allowed"),
    [
        ([], "READ", False),
        (["allow alice READ orders"], "READ", True),
        (["allow alice READ orders"], "WRITE", False),
        (["allow alice READ orders"], "DESCRIBE", True),
        (["allow alice WRITE orders"], "DESCRIBE", True),
        (["allow alice DELETE orders"], "DESCRIBE", True),
        (["allow alice ALTER orders"], "DESCRIBE", True),
        (["allow alice CREATE orders"], "DESCRIBE", False),
        (["allow alice ALTER_CONFIGS orders"], "DESCRIBE_CONFIGS", True),
        (["allow alice ALTER_CONFIGS orders"], "DESCRIBE", False),
        (["allow alice ALL orders"], "DESCRIBE_CONFIGS", True),
        (["allow alice READ ord*"], "READ", True),
        (["allow alice READ orders*"], "READ", True),
        (["allow alice READ orders2*"], "READ", False),
        (["allow alice READ Ord*"], "READ", False),
        (["allow alice READ *"], "READ", True),
        (["allow alice READ **"], "READ", False),
        (["allow User:* READ orders"], "READ", True),
        (["allow Group:alice READ orders"], "READ", False),
        (["allow Alice READ orders"], "READ", False),
        (["allow a* READ orders"], "READ", False),
        (["allow alice@127.0.0.1 READ orders"], "READ", True),
        (["allow alice@10.0.0.1 READ orders"], "READ", False),
        (["allow alice READ orders", "deny alice@127.0.0.1 READ orders"], "READ", False),
        (["allow alice READ orders", "deny alice@10.0.0.1 READ orders"], "READ", True),
        (["allow alice READ orders", "deny alice READ *"], "READ", False),
        (["allow alice READ orders", "deny alice READ ord*"], "READ", False),
        (["allow alice READ ord*", "deny alice READ orders"], "READ", False),
        (["allow alice READ orders*", "deny alice READ o*"], "READ", False),
        (["allow alice READ orders", "deny User:* ALL orders"], "READ", False),
        (["allow alice ALL orders", "deny alice READ orders"], "READ", False),
        (["allow alice READ orders", "deny alice READ orders"], "DESCRIBE", True),
        (["allow alice READ orders", "deny alice DESCRIBE orders"], "DESCRIBE", False),
        (["allow alice READ orders", "deny alice DESCRIBE orders"], "READ", True),
        (["allow alice READ orders", "deny bob READ orders"], "READ", True),
    ],
)
def test_operation_on_a_topic_is_decided_as_in_kafka(rules: list[str], operation: str, allowed: bool) -> None:
    assert allows(index_of(*rules), operation) is allowed


@pytest.mark.parametrize(
    ("written", "client"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::1", "::1"),
        ("2001:DB8:0:0:0:0:0:7", "2001:db8::7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0"),
    ],
)
def test_address_of_an_entry_counts_in_every_spelling(written: str, client: str) -> None:
    index = index_of("allow alice READ orders", f"deny alice@{written} READ orders")
    assert not allows(index, "READ", host=client)
    assert allows(index, "READ", host="10.0.0.8")


def test_resource_of_another_type_and_the_same_name_is_not_covered() -> None:
    index = index_of("allow alice READ orders")
    assert index.allowed(ALICE, HERE, AclResourceType.GROUP, "orders") is None
    assert index.allowed(ALICE, HERE, AclResourceType.TOPIC, "other") is None


def test_denial_of_another_principal_covers_the_resource() -> None:
    assert index_of("deny bob READ orders").allowed(ALICE, HERE, AclResourceType.TOPIC, "orders") == 0


def test_change_leaves_the_former_index_as_it_was() -> None:
    before = index_of("allow alice READ orders", "allow alice WRITE ord*")
    after = before.changed({rule("allow alice READ orders").pattern: frozenset()})
    assert (allows(before, "READ"), allows(before, "WRITE")) == (True, True)
    assert (allows(after, "READ"), allows(after, "WRITE")) == (False, True)
    gone = after.changed({rule("allow alice WRITE ord*").pattern: frozenset()})
    assert gone.allowed(ALICE, HERE, AclResourceType.TOPIC, "orders") is None


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], False),
        (["allow alice WRITE orders"], True),
        (["allow alice READ orders"], False),
        (["allow alice ALL ord*"], True),
        (["allow alice WRITE *", "deny alice WRITE orders"], True),
        (["allow alice WRITE orders", "deny alice WRITE *"], False),
        (["allow alice WRITE orders", "deny alice WRITE orders"], False),
        (["allow alice WRITE orders", "deny alice WRITE ord*"], False),
        (["allow alice WRITE orders", "deny alice WRITE other"], True),
        (["allow alice WRITE ord*", "deny alice WRITE ord"], True),
        (["allow alice WRITE ord*", "deny alice WRITE orders*"], True),
        (["allow alice WRITE orders*", "deny alice WRITE ord*"], False),
        (["allow alice WRITE ord*", "deny alice WRITE ord*"], False),
        (["allow alice WRITE orders", "deny alice@10.0.0.1 WRITE orders"], True),
        (["allow alice@10.0.0.1 WRITE orders"], False),
        (["allow User:* WRITE orders", "deny alice WRITE orders"], False),
    ],
)
def test_write_on_any_topic_is_decided_as_in_kafka(rules: list[str], allowed: bool) -> None:
    assert index_of(*rules).allows_any(ALICE, HERE, AclOperation.WRITE, AclResourceType.TOPIC) is allowed


IMPLIED = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def read_plainly(bindings: list[AclBinding], host: str, operation: AclOperation, name: str) -> bool:
    """Each rule in turn."""
    matching = [
        entry
        for pattern, entry in bindings
        if pattern_matches(pattern, name)
        and entry.host in (WILDCARD, host)
        and principal_of(entry.principal) in (ALICE, principal_of(EVERYONE))
    ]
    if any(
        e.permission_type is AclPermissionType.DENY and e.operation in (operation, AclOperation.ALL) for e in matching
    ):
        return False
    enough = {operation, AclOperation.ALL} | IMPLIED.get(operation, set())
    return any(e.permission_type is AclPermissionType.ALLOW and e.operation in enough for e in matching)


NAMES = st.text("ab*", min_size=1, max_size=4)
BINDINGS = st.builds(
    AclBinding,
    st.builds(
        ResourcePattern,
        st.just(AclResourceType.TOPIC),
        NAMES,
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    ),
    st.builds(
        AccessControlEntry,
        st.sampled_from(["User:alice", "User:bob", EVERYONE]),
        st.sampled_from([WILDCARD, HERE, "10.0.0.1"]),
        st.sampled_from(OPERATIONS),
        st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.DENY]),
    ),
)


@settings(max_examples=200, deadline=None)
@given(first=st.lists(BINDINGS, max_size=12), then=st.lists(BINDINGS, max_size=6), name=NAMES)
def test_index_decides_as_a_plain_reading_of_all_rules(
    first: list[AclBinding], then: list[AclBinding], name: str
) -> None:
    index = AclIndex().changed(by_pattern(first))
    index.allowed(ALICE, HERE, AclResourceType.TOPIC, name)
    changed = by_pattern(then)
    index = index.changed(changed)
    bindings = [binding for binding in first if binding.pattern not in changed] + then
    for operation in OPERATIONS:
        allowed = index.allowed(ALICE, HERE, AclResourceType.TOPIC, name) or 0
        if operation is not AclOperation.ALL:
            assert bool(allowed & 1 << operation) is read_plainly(bindings, HERE, operation, name), operation.name


@settings(max_examples=200, deadline=None)
@given(
    prefixes=st.sets(st.text("ab", min_size=1, max_size=5), max_size=15),
    name=st.text("ab", min_size=1, max_size=6),
)
def test_prefix_that_a_name_begins_with_is_found_among_others(prefixes: set[str], name: str) -> None:
    index = index_of(*(f"allow alice READ {prefix}*" for prefix in prefixes))
    assert allows(index, "READ", name) is name.startswith(tuple(prefixes))


@settings(max_examples=100, deadline=None)
@given(first=st.lists(BINDINGS, max_size=8), then=st.lists(BINDINGS, max_size=4), gone=st.lists(BINDINGS, max_size=4))
def test_changed_index_decides_on_any_topic_as_a_new_one(
    first: list[AclBinding], then: list[AclBinding], gone: list[AclBinding]
) -> None:
    index = AclIndex().changed(by_pattern(first))
    before = index.allows_any(ALICE, HERE, AclOperation.WRITE, AclResourceType.TOPIC)
    changes = {**by_pattern(then), **{binding.pattern: frozenset() for binding in gone}}
    changed = index.changed(changes)
    new = AclIndex().changed({**by_pattern(first), **changes})
    for who in (ALICE, ("User", "bob"), ("User", "eve")):
        for operation in (AclOperation.WRITE, AclOperation.READ):
            expected = new.allows_any(who, HERE, operation, AclResourceType.TOPIC)
            assert changed.allows_any(who, HERE, operation, AclResourceType.TOPIC) is expected
    assert index.allows_any(ALICE, HERE, AclOperation.WRITE, AclResourceType.TOPIC) is before
