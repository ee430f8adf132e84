"""``AccessControl``: the authorizer of a broker with its access control lists, and the delegation tokens, if any."""

from typing import Final, NamedTuple

from oncelog.broker.config.access_control import has_authorizer, super_users
from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import Listeners
from oncelog.broker.dispatch.dispatcher import Dispatcher
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.security.acl_authorizer import AclAuthorizer
from oncelog.broker.security.audit import Audit
from oncelog.broker.security.authorizer import AllowAll, Authorizer
from oncelog.broker.security.denial_log import WINDOW_SECONDS
from oncelog.broker.security.fellow_brokers import FellowBrokers
from oncelog.broker.security.login_log import LoginLog
from oncelog.coordinator.controller.acl_repository import AclRepository
from oncelog.coordinator.controller.cluster_image import MetadataCache
from oncelog.coordinator.controller.controller import Controller
from oncelog.coordinator.controller.token_repository import TokenRepository
from oncelog.coordinator.metadata_store.store import MetadataStore
from oncelog.coordinator.ports import WallClock

_SWEEP_SECONDS: Final = 10.0
"""For the removal of one expired token."""


class AccessControl(NamedTuple):
    """See the module."""

    authorizer: Authorizer
    acls: AclRepository | None
    """None without ``authorizer.class.name``."""
    audit: Audit | None
    """None without ``oncelog.audit.file``."""
    tokens: TokenRepository | None
    """None without ``delegation.token.secret.key``."""

    @property
    def logins(self) -> LoginLog:
        """What becomes of logins; it counts nothing without an audit."""
        return LoginLog() if self.audit is None else self.audit.logins

    def follow(self, controller: Controller) -> None:
        """Read lists and tokens as soon as the broker has a session, and whenever they change."""
        controller.stored.acls = self.acls
        controller.stored.tokens = self.tokens

    def watch(self, dispatcher: Dispatcher, listeners: Listeners, metadata: MetadataCache) -> FellowBrokers:
        """Have requests audited, if that is wanted; returns what tells other brokers' requests from clients'."""
        if self.audit is not None:
            self.audit.watch_changes(dispatcher)
        brokers = FellowBrokers(self.authorizer, listeners, metadata)
        dispatcher.may_act = brokers.may_act
        return brokers

    def begin(
        self, config: BrokerConfig, controller: Controller, supervisor: Supervisor, wall_clock: WallClock
    ) -> None:
        """Begin to remove tokens that have expired, while this broker is the controller."""
        tokens = self.tokens
        if tokens is None:
            return

        async def sweep() -> None:
            if controller.is_active:
                await tokens.remove_expired(wall_clock(), timeout_seconds=_SWEEP_SECONDS)

        interval_ms = config.delegation_token_expiry_check_interval_ms
        supervisor.repeat(sweep, "removal of expired tokens", interval_ms / 1000)


def open_access_control(
    config: BrokerConfig, store: MetadataStore, supervisor: Supervisor, audit: Audit | None
) -> AccessControl:
    """Return the access control that the settings ask for. The lists are read when the broker joins the cluster."""
    key = config.delegation_token_secret_key
    tokens = None
    if key is not None:
        tokens = TokenRepository(store, key.encode(), max_count=config.oncelog_delegation_tokens_max_count)
    if not has_authorizer(config):
        return AccessControl(AllowAll(), None, audit, tokens)
    authorizer = AclAuthorizer(super_users(config), allows_everyone_without_acl=config.allow_everyone_if_no_acl_found)
    supervisor.repeat(authorizer.denials.end_window, "count of denials", WINDOW_SECONDS)
    if audit is not None:
        audit.watch_decisions(authorizer)
    return AccessControl(authorizer, AclRepository(store, authorizer.change), audit, tokens)
