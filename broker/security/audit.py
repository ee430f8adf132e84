"""The audit of a broker: what is written to its audit log, if the settings name one."""

from contextlib import AsyncExitStack
from typing import Any, Final

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.dispatch.dispatcher import Dispatcher
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.security.acl_authorizer import AclAuthorizer
from oncelog.broker.security.allowed_counts import Allowed, AllowedCounts
from oncelog.broker.security.audit_log import FLUSH_SECONDS, HEAD_SECONDS, AuditLog
from oncelog.broker.security.audited_changes import AUDITED, describe_change
from oncelog.broker.security.authorizer import Authorizer
from oncelog.broker.security.denial_log import WINDOW_SECONDS, Denial
from oncelog.broker.security.login_log import LoginLog
from oncelog.broker.storage.disk import Disk
from oncelog.coordinator.ports import WallClock
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Message

_ALL: Final = "all"


class Audit:
    """Has logins, changes, denials and, if wanted, what is allowed written."""

    def __init__(self, log: AuditLog, supervisor: Supervisor, *, has_allowed: bool) -> None:
        self._log = log
        self._supervisor = supervisor
        self._has_allowed = has_allowed
        supervisor.repeat(log.flush, "audit log", FLUSH_SECONDS)
        self.logins = LoginLog(log.add)
        supervisor.repeat(self.logins.end_window, "count of logins", WINDOW_SECONDS)
        supervisor.repeat(log.note_head, "last seal of the audit log", HEAD_SECONDS)

    def watch_decisions(self, authorizer: Authorizer) -> None:
        """Write what an authorizer decides. One that allows everything decides nothing."""
        if not isinstance(authorizer, AclAuthorizer):
            return
        authorizer.denials.on_line = self._note_denial
        authorizer.denials.on_rest = lambda count: self._log.add("denied", count=count)
        if self._has_allowed:
            authorizer.allowed = AllowedCounts(self._note_allowed)
            self._supervisor.repeat(authorizer.allowed.end_window, "count of what is allowed", WINDOW_SECONDS)

    def watch_changes(self, dispatcher: Dispatcher) -> None:
        """Write the requests that change something, with what became of them."""
        dispatcher.watch(AUDITED, self._note_change)

    def _note_change(self, context: RequestContext, name: str, request: Message, outcome: Message | ErrorCode) -> None:
        for fields in describe_change(context, name, request, outcome):
            self._log.add("change", **fields)

    def _note_denial(self, denial: Denial, name: str, count: int) -> None:
        self._log.add("denied", **_decision(denial._asdict() | {"name": name}), count=count)

    def _note_allowed(self, allowed: Allowed | None, count: int) -> None:
        self._log.add("allowed", **({} if allowed is None else _decision(allowed._asdict())), count=count)


def _decision(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "principal": str(fields["principal"]),
        "host": fields["host"],
        "operation": fields["operation"].name,
        "resource_type": fields["resource_type"].name,
        "resource": fields["name"],
    }


def open_audit(
    config: BrokerConfig, disk: Disk, wall_clock: WallClock, resources: AsyncExitStack, supervisor: Supervisor
) -> Audit | None:
    """Return the audit that the settings want, or none. Raises ``ConfigError`` for a file that cannot be used."""
    if config.oncelog_audit_file is None:
        return None
    log = AuditLog(
        disk,
        config.oncelog_audit_file,
        key_path=config.oncelog_audit_key_file,
        wall_clock=wall_clock,
        max_bytes=config.oncelog_audit_file_max_bytes,
    )
    resources.callback(log.close)
    audit = Audit(log, supervisor, has_allowed=config.oncelog_audit_decisions == _ALL)
    resources.callback(audit.logins.write_counts)
    return audit
