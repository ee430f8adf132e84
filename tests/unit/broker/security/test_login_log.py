"""Lines about logins: few, bounded, and without what a client has sent to show who it is."""

from typing import Any

from oncelog.broker.dispatch.request import ConnectionInfo, Principal
from oncelog.broker.security.login_log import TLS, LoginLog

Line = tuple[str, dict[str, Any]]


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.log = LoginLog(self._write)
        self.lines: list[Line] = []

    def _write(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    def take(self) -> list[Line]:
        lines, self.lines = self.lines, []
        return lines


def connection(user: str = "alice", host: str = "10.0.0.1") -> ConnectionInfo:
    return ConnectionInfo(client_host=host, listener_name="SASL_SSL", principal=Principal("User", user))


def fields(principal: str | None, mechanism: str | None, **more: Any) -> dict[str, Any]:
    return {"principal": principal, "mechanism": mechanism, "host": "10.0.0.1", "listener": "SASL_SSL", **more}


async def test_equal_logins_are_one_line_and_then_their_number() -> None:
    kept = Lines()
    for _ in range(5):
        kept.log.succeeded(connection(), "PLAIN")
    kept.log.succeeded(connection(), "SCRAM-SHA-256", is_delegated=True)
    assert kept.take() == [
        ("login", fields("User:alice", "PLAIN", count=1)),
        ("login", fields("User:alice", "SCRAM-SHA-256", token=True, count=1)),
    ]
    await kept.log.end_window()
    assert kept.take() == [("login", fields("User:alice", "PLAIN", count=4))]
    await kept.log.end_window()
    assert kept.take() == []
    kept.log.succeeded(connection(), "PLAIN")
    assert len(kept.take()) == 1


async def test_login_that_failed_has_its_reason_and_a_user_that_exists() -> None:
    kept = Lines()
    kept.log.failed(connection("ANONYMOUS"), "PLAIN", "a wrong password of user bob", "bob")
    kept.log.failed(connection("ANONYMOUS"), "PLAIN", "an unknown user")
    kept.log.failed(connection("ANONYMOUS"), "PLAIN", "a malformed PLAIN token of 7 bytes")
    kept.log.failed(connection("ANONYMOUS"), "", "a request for API key 3 before authentication")
    kept.log.failed(connection("ANONYMOUS"), TLS, "it does not speak TLS")
    assert kept.take() == [
        ("login_failed", fields("User:bob", "PLAIN", reason="a wrong password of user bob", count=1)),
        ("login_failed", fields(None, "PLAIN", reason="an unknown user", count=1)),
        ("login_failed", fields(None, None, reason="a request for API key 3 before authentication", count=1)),
        ("login_failed", fields(None, "TLS", reason="it does not speak TLS", count=1)),
    ]
    await kept.log.end_window()
    assert kept.take() == [("login_failed", fields(None, "PLAIN", count=1))]


async def test_logins_from_many_addresses_are_bounded_lines() -> None:
    """Those that fail, which need no account, leave the lines of the others to be written."""
    kept = Lines()
    for number in range(5_000):
        kept.log.failed(connection(host=f"10.1.{number // 250}.{number % 250}"), "PLAIN", "an unknown user")
    assert len(kept.take()) == 1_000
    kept.log.succeeded(connection(), "PLAIN")
    await kept.log.end_window()
    (login, failures) = kept.take()
    assert (login[0], login[1]["principal"], failures) == ("login", "User:alice", ("login_failed", {"count": 4_000}))


async def test_log_without_an_audit_keeps_nothing() -> None:
    log = LoginLog()
    log.succeeded(connection(), "PLAIN")
    log.failed(connection(), "PLAIN", "an unknown user")
    await log.end_window()
