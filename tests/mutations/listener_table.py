"""The safeguards of a change of listeners while a cluster runs, for ``table``."""

from typing import Final

from tests.mutations.mutation import Mutation

_TEST: Final = "tests/simulation/test_secured_while_running.py"
_STAY: Final = f"{_TEST}::test_brokers_stay_in_sync_while_one_after_the_other_changes_its_listener"

LISTENER_MUTATIONS: Final = (
    Mutation(
        "B133", "coordinator/controller/controller.py",
        "        return next((endpoint for endpoint in endpoints if endpoint.listener == wanted), None)\n",
        "        return next(iter(endpoints), None)\n",
        _STAY,
    ),
    Mutation(
        "B133", "broker/peers/cluster_member.py",
        "        known = endpoint or self._metadata.image.endpoint(broker_id, self._listener_name)\n",
        "        known = endpoint or self._metadata.image.endpoint(broker_id, \"PLAINTEXT\")\n",
        _STAY,
    ),
)  # fmt: skip
