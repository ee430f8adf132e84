"""``ScramUsers``: the SCRAM credentials of users, as the metadata store has them (KIP-554).

A user's credentials lie beside its quotas, in ``/config/users/NAME``: the name of the mechanism is the key. Every
broker has all of them in memory, and is notified of changes like those of any configuration.
"""

import logging

from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.coordinator.controller.config_repository import ConfigRepository
from oncelog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from oncelog.protocol.sasl.scram import BadCredential, ScramCredential, ScramMechanism, parse_credential

logger = logging.getLogger(__name__)


class ScramUsers:
    """What one broker knows of them."""

    def __init__(self, configs: ConfigRepository) -> None:
        self._configs = configs

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return the credential of a user; None if there is none, or what is stored is malformed."""
        text = self._configs.overrides(user_resource(user)).get(mechanism.name)
        if text is None:
            return None
        try:
            return parse_credential(mechanism, text)
        except BadCredential as error:
            logger.error("The %s credential of user %s cannot be used: %s", mechanism.name, user, error)
            return None

    def names(self) -> list[str]:
        """Return the users that have a credential, in order."""
        users = self._configs.overridden(ResourceType.USER)
        return [user for user in users if not SCRAM_MECHANISMS.keys().isdisjoint(self._keys(user))]

    def credentials(self, user: str) -> dict[ScramMechanism, ScramCredential]:
        """Return the credentials of a user, by mechanism."""
        found = {each: self.find(each, user) for each in SCRAM_MECHANISMS.values()}
        return {mechanism: credential for mechanism, credential in found.items() if credential is not None}

    def _keys(self, user: str) -> set[str]:
        return set(self._configs.overrides(user_resource(user)))


def user_resource(user: str) -> ConfigResource:
    return ConfigResource(ResourceType.USER, user)
