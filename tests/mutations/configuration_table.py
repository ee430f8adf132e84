"""The safeguards of topic configurations, of internal topics, and against malformed znodes."""

from typing import Final

from tests.mutations.mutation import Mutation

_SETTINGS: Final = "tests/simulation/test_topic_settings.py"
_MALFORMED: Final = "tests/simulation/test_malformed_znodes.py"

CONFIGURATION_MUTATIONS: Final = (
    Mutation(
        "B95", "coordinator/controller/topic_changes.py",
        "        if self.plan.configs or config_znode is not None:\n",
        "        if False:\n",
        f"{_SETTINGS}::test_partitions_added_under_another_controller_get_the_topics_settings",
    ),
    Mutation(
        "B95", "coordinator/controller/active_controller.py",
        "        await self._stored.load_configs(context.session)\n",
        "",
        f"{_SETTINGS}::test_new_controller_reads_whether_unclean_elections_are_allowed",
    ),
    Mutation(
        "B95", "broker/handlers/leader_and_isr.py",
        "    if not without_log:\n",
        "    if without_log is not None:\n",
        f"{_SETTINGS}::test_broker_that_cannot_read_a_topics_settings_makes_no_log_until_it_can",
    ),
    Mutation(
        "B95", "coordinator/controller/config_repository.py",
        "            self._doubtful.update(",
        "            dict[ConfigResource, None]().update(",
        f"{_SETTINGS}::test_topic_that_is_created_again_without_settings_has_none_on_brokers_without_a_replica",
    ),
    Mutation(
        "B95", "coordinator/controller/config_repository.py",
        "        await session.sync()\n        resources =",
        "        resources =",
        f"{_SETTINGS}::test_broker_whose_member_of_the_ensemble_is_behind_makes_logs_with_the_topics_settings",
    ),
    Mutation(
        "B95", "coordinator/controller/config_repository.py",
        "        if self._doubtful:\n",
        "        if False:\n",
        f"{_SETTINGS}::test_broker_whose_member_is_behind_forgets_a_former_topics_settings",
    ),
    Mutation(
        "B96", "broker/config/topic_config.py",
        "    return {**overrides, _CLEANUP_POLICY: _COMPACT} if topic in INTERNAL_TOPICS else overrides\n",
        "    return overrides\n",
        f"{_SETTINGS}::TestInternalTopics",
    ),
    Mutation(
        "B96", "coordinator/controller/topic_plan.py",
        "    if name in INTERNAL_TOPICS:\n",
        "    if not name:\n",
        f"{_SETTINGS}::TestInternalTopics",
    ),
    Mutation(
        "B96", "coordinator/controller/cluster_image.py",
        "        return self._internal_topics.counts.get(topic) or len(image.partitions)\n",
        "        return len(image.partitions)\n",
        f"{_SETTINGS}::TestInternalTopics",
    ),
    Mutation(
        "B97", "coordinator/controller/cluster_state.py",
        "        except MalformedZnode as error:\n            self.set_aside(path, znode, error)\n",
        "        except MalformedZnode:\n            raise\n",
        f"{_MALFORMED}::test_malformed_partition_states_set_only_those_partitions_aside",
    ),
    Mutation(
        "B97", "coordinator/controller/partition_states.py",
        "        remaining = [partition for partition in remaining if not context.state.is_set_aside(partition)]\n",
        "",
        f"{_MALFORMED}::test_partition_state_that_is_spoilt_under_a_controller_sets_only_that_partition_aside",
    ),
    Mutation(
        "B97", "broker/start.py",
        "            return replace(config, cleanup_policy=frozenset())\n",
        "            return config\n",
        f"{_MALFORMED}::test_malformed_configuration_loses_no_record_and_stops_nothing_else",
    ),
)  # fmt: skip
