"""The safeguards of client quotas."""

from typing import Final

from tests.mutations.mutation import Mutation

_SCENARIOS: Final = "tests/scenarios/test_throttled_clients.py"
_REQUESTS: Final = "tests/unit/broker/handlers/test_throttled_requests.py"
_METADATA: Final = "tests/unit/broker/handlers/test_metadata.py"
_CLIENT_QUOTAS: Final = "tests/unit/broker/quotas/test_client_quotas.py"
_FELLOWS: Final = "tests/unit/broker/security/test_fellow_brokers.py"
_ALTERATIONS: Final = "tests/unit/broker/handlers/test_client_quotas.py"

QUOTA_MUTATIONS: Final = (
    Mutation(
        "B131", "broker/network/connection.py",
        "self._blocked or mute.is_on or writer.is_paused", "self._blocked or writer.is_paused",
        f"{_SCENARIOS}::test_requests_behind_a_throttled_one_wait_in_their_order",
    ),
    Mutation(
        "B131", "broker/quotas/client_quotas.py",
        "            context.connection.throttle(milliseconds / 1000)\n", "            pass\n",
        f"{_SCENARIOS}::test_throttled_response_leaves_at_once_and_then_nothing_is_read",
    ),
    Mutation(
        "B131", "broker/quotas/client_quota.py",
        "        rate.record(-used, now, self.windows)\n", "",
        f"{_SCENARIOS}::test_throttled_consumer_gets_its_rate_and_everything",
    ),
    Mutation(
        "B131", "broker/handlers/fetch.py",
        "        if not gets_records:\n            return FetchResponse(throttle_time_ms=throttle_time_ms)\n", "",
        f"{_REQUESTS}::test_throttled_full_fetch_returns_nothing_and_keeps_no_session",
    ),
    Mutation(
        "B131", "broker/replication/delayed_fetch.py",
        "        if context.kind is FetchKind.FULL and not is_throttled:", "        if context.kind is FetchKind.FULL:",
        f"{_REQUESTS}::test_throttled_full_fetch_returns_nothing_and_keeps_no_session",
    ),
    Mutation(
        "B131", "broker/quotas/sensors.py",
        "            if len(self._sensors) < self._most and not self._is_unused",
        "            if not self._is_unused",
        "tests/unit/broker/quotas/test_sensors.py::test_sensors_are_no_more_than_most_however_many_client_ids_come_at_once",
    ),
    Mutation(
        "B131", "broker/handlers/alter_client_quotas.py",
        "        operations=tuple(operation for operation in operations if operation.key in allowed),\n",
        "        operations=tuple(operations),\n",
        f"{_ALTERATIONS}::test_quotas_of_a_user_leave_its_credentials_as_they_are",
    ),
    Mutation(
        "B131", "coordinator/controller/config_repository.py",
        "                entity_paths += await _entities_in(session, folder)\n        return",
        "                pass\n        return",
        "tests/simulation/test_cluster_quotas.py::test_quotas_reach_every_broker_and_those_that_start_later",
    ),
    Mutation(
        "B131", "broker/network/mute.py",
        "            self._timer.cancel()\n            self._timer = None\n", "            pass\n",
        "tests/unit/broker/network/test_mute.py::test_mute_of_a_lost_connection_has_no_timer",
    ),
    Mutation(
        "B137", "broker/handlers/metadata.py",
        "create(allowed, broker.quotas.mutations(context, is_strict=True))", "create(allowed)",
        f"{_METADATA}::test_topics_beyond_the_quota_of_their_client_are_not_created",
    ),
    Mutation(
        "B137", "broker/peers/auto_topics.py",
        "                mutations.give_back(self._config.num_partitions)\n", "                pass\n",
        f"{_METADATA}::test_topics_that_cannot_be_created_do_not_count_for_the_quota",
    ),
    Mutation(
        "B138", "broker/peers/lanes.py",
        "    CreateTopicsRequest: Lane.TOPICS,", "    CreateTopicsRequest: Lane.CONTROLLER,",
        "tests/simulation/test_cluster_quotas.py::test_broker_that_may_create_no_more_topics_still_changes_its_isr",
    ),
    Mutation(
        "B138", "broker/quotas/client_quotas.py",
        "        if api_key is ApiKey.API_VERSIONS and connection.carries_heartbeats:\n", "        if False:\n",
        f"{_CLIENT_QUOTAS}::test_heartbeats_of_a_broker_are_not_throttled_and_their_time_is_not_lost",
    ),
    Mutation(
        "B138", "broker/quotas/client_quotas.py",
        "        if limits and not self.is_brokers(context):\n", "        if limits:\n",
        f"{_CLIENT_QUOTAS}::test_requests_of_another_broker_are_neither_throttled_nor_refused",
    ),
    Mutation(
        "B138", "broker/security/fellow_brokers.py",
        "return self.may_act(context)", "return True",
        f"{_FELLOWS}::test_request_that_lacks_one_sign_of_a_broker_is_a_clients",
    ),
)  # fmt: skip
