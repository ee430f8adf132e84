"""The settings of client quotas, a part of the broker's table (``BrokerConfig``). Quotas are in the metadata store."""

from dataclasses import dataclass

from oncelog.broker.config.oauth_settings import OauthSettings
from oncelog.broker.config.settings import INT32_MAX, integer


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class QuotaSettings(OauthSettings):
    """How rates are taken, and how fast connections may come."""

    quota_window_num: int = integer(11, "Number of windows over which the rates of client quotas are averaged.", low=1)
    quota_window_size_seconds: int = integer(
        1, "Length of a window over which the rates of client quotas are averaged, in seconds.", low=1
    )
    controller_quota_window_num: int = integer(
        11, "Number of windows whose controller_mutation_rate a client may use at once.", low=1
    )
    controller_quota_window_size_seconds: int = integer(
        1, "Length of a window of the quota controller_mutation_rate, in seconds.", low=1
    )
    max_connection_creation_rate: int = integer(
        INT32_MAX,
        "Maximum rate of new connections, per second; those that come faster are served later. "
        "For one listener: listener.name.NAME.max.connection.creation.rate.",
        low=1,
    )
