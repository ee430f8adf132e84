"""``StoredSettings``: what a broker has read from the metadata store: settings, features, access control lists, tokens.

Each reading leaves a watch. When a watch fires, what has changed is read again as an event of the controller's queue.
Every broker does this, not only the controller.
"""

from collections.abc import Callable, Collection

from oncelog.coordinator.controller.acl_repository import AclRepository
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.coordinator.controller.config_repository import ConfigRepository, Overrides
from oncelog.coordinator.controller.event_queue import EventQueue
from oncelog.coordinator.controller.finalized_features import FinalizedFeatureCache
from oncelog.coordinator.controller.recovery_strategy import RecoverySettings
from oncelog.coordinator.controller.token_repository import TokenRepository
from oncelog.coordinator.metadata_store.store import MetadataStore, Session


class StoredSettings:
    """The dynamic configurations, finalised features, access control lists and tokens, and what keeps them current."""

    def __init__(
        self, store: MetadataStore, configs: ConfigRepository, features: FinalizedFeatureCache, queue: EventQueue
    ) -> None:
        self._store = store
        self.queue = queue
        self.configs = configs
        self.features = features
        self.acls: AclRepository | None = None
        """None on a broker without an authorizer."""
        self.tokens: TokenRepository | None = None
        """None on a broker without a secret key of delegation tokens."""
        self.default_min_isr = 1
        """``min.insync.replicas`` of topics that do not say."""
        self.on_min_isr: Callable[[], None] = _nothing
        """Called after ``default_min_isr`` has changed."""
        self.recovery = RecoverySettings()
        """Of topics that do not say."""
        self.on_recovery: Callable[[], None] = _nothing
        """Called after ``recovery`` has changed."""
        configs.add_listener(self._on_overrides)
        self.on_mended: Callable[[list[str]], None] = _ignore
        """Called with the names of topics whose configuration could not be decoded before and can be now."""

    def set_default_min_isr(self, minimum: int) -> None:
        """Apply ``min.insync.replicas`` of topics that do not say."""
        if minimum != self.default_min_isr:
            self.default_min_isr = minimum
            self.on_min_isr()

    def _on_overrides(self, resource: ConfigResource, overrides: Overrides) -> None:
        """Look again at the minimums: a broker may have one of its own."""
        if resource.type is ResourceType.BROKER:
            self.on_min_isr()

    def set_recovery(self, recovery: RecoverySettings) -> None:
        """Apply the settings of unclean elections and recoveries of topics that do not say."""
        if recovery != self.recovery:
            self.recovery = recovery
            self.on_recovery()

    async def load(self, session: Session) -> None:
        """Read everything with a new session."""
        await self.load_configs(session)
        await self.features.refresh(session, self.features_changed)
        if self.acls is not None:
            await self.acls.load(session, self._acls_changed)
        if self.tokens is not None:
            await self.tokens.load(session, self._tokens_changed)

    async def load_configs(self, session: Session) -> None:
        """Read all configurations, also those that were changed without a change notification."""
        await self.configs.load(session, self._configs_changed)

    @property
    def malformed_znodes(self) -> Collection[str]:
        """The paths of configurations that cannot be decoded."""
        return {resource.path for resource in self.configs.unreadable}

    def _configs_changed(self) -> None:
        self.queue.cluster.put("configurations changed", self._refresh_configs)

    async def _refresh_configs(self) -> None:
        session = self._store.session
        if session is None:
            return
        before = set(self.configs.unreadable)
        await self.configs.refresh(session, self._configs_changed)
        mended = before - set(self.configs.unreadable)
        if mended:
            self.on_mended(sorted(resource.name for resource in mended))

    def features_changed(self) -> None:
        """Read the finalised features again: the watch of those who read them."""
        self.queue.cluster.put("features changed", self._refresh_features)

    async def _refresh_features(self) -> None:
        session = self._store.session
        if session is not None:
            await self.features.refresh(session, self.features_changed)

    def _acls_changed(self) -> None:
        self.queue.cluster.put("access control lists changed", self._refresh_acls)

    async def _refresh_acls(self) -> None:
        session = self._store.session
        if session is not None and self.acls is not None:
            await self.acls.refresh(session, self._acls_changed)

    def _tokens_changed(self) -> None:
        self.queue.cluster.put("delegation tokens changed", self._refresh_tokens)

    async def _refresh_tokens(self) -> None:
        session = self._store.session
        if session is not None and self.tokens is not None:
            await self.tokens.refresh(session, self._tokens_changed)


def _nothing() -> None:
    """Do nothing."""


def _ignore(topics: list[str]) -> None:
    """Do nothing."""
