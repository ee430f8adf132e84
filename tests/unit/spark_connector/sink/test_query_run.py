"""Which run of a query a task belongs to, by the tags and the group of its job."""

import pytest

from oncelog.spark_connector.sink.query_run import run_of

SESSION = "0b2c3d4e-0000-4000-8000-00000000000a"
OTHER = "0b2c3d4e-0000-4000-8000-00000000000b"
RUN = "0b2c3d4e-0000-4000-8000-00000000000c"
ROOT = f"spark-session-{SESSION}-execution-root-id-7"


@pytest.mark.parametrize(
    ("tags", "group", "run"),
    [
        (ROOT, RUN, SESSION),
        (f"spark-session-{OTHER},nightly,{ROOT}", "nightly", SESSION),
        (f"spark-session-{OTHER}", RUN, RUN),
        (f"spark-session-{OTHER}", "nightly", ""),
        (f"{ROOT},spark-session-{OTHER}-execution-root-id-8", RUN, RUN),
        ("", RUN, RUN),
        ("", f"{RUN}-2", ""),
        ("", "", ""),
    ],
)
def test_run_is_the_session_of_the_batch_or_else_a_group_that_looks_like_a_run(tags: str, group: str, run: str) -> None:
    assert run_of(tags, group) == run
