"""``AccessControl``: the authorizer of a broker and, if there is one, the access control lists that it decides by."""

from typing import NamedTuple

from oncelog.broker.config.access_control import has_authorizer, super_users
from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.security.acl_authorizer import AclAuthorizer
from oncelog.broker.security.audit import Audit
from oncelog.broker.security.authorizer import AllowAll, Authorizer
from oncelog.broker.security.denial_log import WINDOW_SECONDS
from oncelog.coordinator.controller.acl_repository import AclRepository
from oncelog.coordinator.metadata_store.store import MetadataStore


class AccessControl(NamedTuple):
    """See the module."""

    authorizer: Authorizer
    acls: AclRepository | None
    """None without ``authorizer.class.name``."""
    audit: Audit | None
    """None without ``oncelog.audit.file``."""


def open_access_control(
    config: BrokerConfig, store: MetadataStore, supervisor: Supervisor, audit: Audit | None
) -> AccessControl:
    """Return the access control that the settings ask for. The lists are read when the broker joins the cluster."""
    if not has_authorizer(config):
        return AccessControl(AllowAll(), None, audit)
    authorizer = AclAuthorizer(super_users(config), allows_everyone_without_acl=config.allow_everyone_if_no_acl_found)
    supervisor.repeat(authorizer.denials.end_window, "count of denials", WINDOW_SECONDS)
    if audit is not None:
        audit.watch_decisions(authorizer)
    return AccessControl(authorizer, AclRepository(store, authorizer.change), audit)
