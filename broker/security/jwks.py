"""``Jwks``: the public keys of an issuer, kept current while the broker runs.

The keys are fetched at an interval (``sasl.oauthbearer.jwks.endpoint.refresh.ms``), and earlier when a token names a
key that is not among them: an issuer publishes a new key and then signs with it, and an interval may be long. Tokens
can name any key, so they cause one fetch a minute at most, all together. A fetch that fails changes nothing: the last
good keys stay, and the fetch is retried with backoff.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from oncelog.broker.config.oauth_config import JwksConfig
from oncelog.broker.security.json_web_keys import BadJwks, JsonWebKey, parse_jwks

logger = logging.getLogger(__name__)

FetchJwks: TypeAlias = Callable[[], Awaitable[bytes]]
"""Returns the content of a JWKS. Raises ``JwksUnavailable``."""
_EARLY_SECONDS: Final = 60.0
"""Between two fetches for the sake of a missing key."""
_MAX_DOUBLINGS: Final = 20


class JwksUnavailable(Exception):
    """A JWKS that cannot be read. The text says why."""


class Jwks:
    """The keys of one listener. Its owner runs ``run``."""

    def __init__(self, config: JwksConfig, fetch: FetchJwks, keys: tuple[JsonWebKey, ...] = ()) -> None:
        """Begin with ``keys``, if there are any."""
        self._config = config
        self._fetch = fetch
        self.keys = keys
        """Those that tokens may be signed by, now."""
        self._failures = 0
        """Failed fetches in a row."""
        self._early = asyncio.Event()
        self._early_after = 0.0
        """Seconds of the loop's clock."""

    async def run(self) -> None:
        """Fetch the keys at intervals, for ever."""
        while True:
            await self._wait()
            await self.refresh()

    def note_missing_key(self) -> None:
        """Fetch the keys soon, unless that was done a moment ago, or fails."""
        now = asyncio.get_running_loop().time()
        if self._failures == 0 and now >= self._early_after:
            self._early_after = now + min(_EARLY_SECONDS, self._config.refresh_seconds)
            self._early.set()

    async def refresh(self) -> None:
        """Fetch the keys once. What fails is logged."""
        try:
            keys = parse_jwks(await self._fetch())
        except (JwksUnavailable, BadJwks) as error:
            self._failures += 1
            if self._failures & (self._failures - 1) == 0:  # Log failures 1, 2, 4, 8 and so on.
                state = "the keys stay as they are" if self.keys else "there are no keys, and no token is accepted"
                config = self._config
                logger.warning("%s=%s %s: %s (attempt %d)", config.key, config.url, error, state, self._failures)
            return
        if self._failures or {key.kid for key in keys} != {key.kid for key in self.keys}:
            logger.info("%s=%s has %d keys that verify tokens", self._config.key, self._config.url, len(keys))
        self._failures = 0
        self.keys = keys

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._pause_seconds()):
                await self._early.wait()
        except TimeoutError:
            pass
        self._early.clear()

    def _pause_seconds(self) -> float:
        config = self._config
        if self._failures == 0:
            return config.refresh_seconds
        backoff = config.backoff_seconds * 2.0 ** min(self._failures - 1, _MAX_DOUBLINGS)
        return min(backoff, config.max_backoff_seconds)
