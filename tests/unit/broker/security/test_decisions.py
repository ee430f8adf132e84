"""Decisions that an authorizer keeps: as few as are bounded, and never one that the lists of now would not make."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.dispatch.request import ConnectionInfo, Principal, RequestContext
from oncelog.broker.security.acl_authorizer import AclAuthorizer
from oncelog.broker.security.decisions import Decisions
from oncelog.protocol.acl import AclBinding, AclOperation, AclResourceType
from tests.unit.broker.security.test_acl_index import BINDINGS, HERE, NAMES, by_pattern, read_plainly, rule

ALICE = Principal("User", "alice")
TOPIC = AclResourceType.TOPIC


def context_of(principal: Principal = ALICE, host: str = HERE) -> RequestContext:
    return RequestContext(1, 1, "c", ConnectionInfo(client_host=host, listener_name="SSL", principal=principal))


def authorizer_of(*rules: str, super_users: tuple[str, ...] = (), everyone: bool = False) -> AclAuthorizer:
    users = frozenset(("User", name) for name in super_users)
    made = AclAuthorizer(users, allows_everyone_without_acl=everyone)
    made.change(by_pattern(map(rule, rules)))
    return made


def both(authorizer: AclAuthorizer, context: RequestContext, operation: AclOperation, name: str) -> bool:
    """What is decided, first and again, and by both methods."""
    decided = [decide(context, operation, TOPIC, name) for decide in (authorizer.permits, authorizer.authorize) * 2]
    assert len(set(decided)) == 1
    return decided[0]


@settings(max_examples=200, deadline=None)
@given(changes=st.lists(st.lists(BINDINGS, max_size=8), min_size=1, max_size=4), names=st.lists(NAMES, min_size=1))
def test_authorizer_decides_by_the_lists_of_now_whatever_it_decided_before(
    changes: list[list[AclBinding]], names: list[str]
) -> None:
    authorizer, context, bindings = AclAuthorizer(frozenset()), context_of(), list[AclBinding]()
    for change in changes:
        changed = by_pattern(change)
        authorizer.change(changed)
        bindings = [binding for binding in bindings if binding.pattern not in changed] + change
        for name in names:
            for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE):
                expected = read_plainly(bindings, HERE, operation, name)
                assert both(authorizer, context, operation, name) is expected


def test_right_that_is_taken_away_is_denied_from_then_on() -> None:
    authorizer, context = authorizer_of("allow alice READ orders"), context_of()
    assert both(authorizer, context, AclOperation.READ, "orders")
    authorizer.change({rule("allow alice READ orders").pattern: frozenset()})
    assert not both(authorizer, context, AclOperation.READ, "orders")


def test_decision_about_one_client_is_none_about_another() -> None:
    authorizer = authorizer_of("allow alice@127.0.0.1 READ orders", "allow bob WRITE orders")
    decided = [
        both(authorizer, context_of(principal, host), operation, "orders")
        for principal in (ALICE, Principal("User", "bob"), Principal("Group", "alice"))
        for host in (HERE, "10.0.0.1")
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]
    assert decided == [True, False, False, False, False, True, False, True, False, False, False, False]


def test_decision_about_a_topic_is_none_about_a_group_of_its_name() -> None:
    authorizer, context = authorizer_of("allow alice READ orders"), context_of()
    assert both(authorizer, context, AclOperation.READ, "orders")
    assert not authorizer.permits(context, AclOperation.READ, AclResourceType.GROUP, "orders")


@pytest.mark.parametrize("everyone", [False, True])
def test_client_without_lists_about_a_resource_may_do_what_the_setting_says(everyone: bool) -> None:
    authorizer, context = authorizer_of("deny bob READ orders", everyone=everyone), context_of()
    assert both(authorizer, context, AclOperation.READ, "other") is everyone
    assert not both(authorizer, context, AclOperation.READ, "orders")


def test_super_user_may_do_everything_before_the_lists_are_known_and_whatever_they_say() -> None:
    authorizer, context = AclAuthorizer(frozenset({("User", "alice")})), context_of()
    assert both(authorizer, context, AclOperation.READ, "orders")
    authorizer.change(by_pattern([rule("deny alice ALL orders")]))
    assert both(authorizer, context, AclOperation.READ, "orders")


def test_client_that_was_denied_before_the_lists_were_known_is_allowed_by_them() -> None:
    authorizer, context = AclAuthorizer(frozenset()), context_of()
    assert not both(authorizer, context, AclOperation.READ, "orders")
    authorizer.change(by_pattern([rule("allow alice READ orders")]))
    assert both(authorizer, context, AclOperation.READ, "orders")


def test_decisions_that_are_kept_are_bounded() -> None:
    authorizer, context = authorizer_of("allow alice READ ord*"), context_of()
    for number in range(45_000):
        authorizer.permits(context, AclOperation.READ, TOPIC, f"orders{number}")
    kept = authorizer.decisions
    assert kept.count == sum(len(names) for types in kept.by_client.values() for names in types.values()) == 5_000
    assert both(authorizer, context, AclOperation.READ, "orders7")


def test_decision_about_a_long_name_is_not_kept() -> None:
    decisions = Decisions()
    decisions.keep(ALICE, HERE, TOPIC, "o" * 257, 1)
    assert (decisions.count, decisions.by_client) == (0, {})
