"""Every API key in every state of authentication, on a broker in virtual time."""

from tests.scenarios.kafkas_outcomes import difference, expected_outcome, kafkas_outcome
from tests.scenarios.sasl_states import Ends, all_cells, all_outcomes, authenticating_settings
from tests.scenarios.stage import Stage, scenario


@scenario(settings=authenticating_settings(Ends(), protocol="SASL_PLAINTEXT"), seeds=(1,))
async def test_apis_in_every_state_have_the_outcome_of_kafka(stage: Stage) -> None:
    outcomes = await all_outcomes(Ends())
    wrong = [
        f"{cell[0]} {cell[1].value}: {found}, expected {expected_outcome(*cell)}"
        for cell, found in outcomes.items()
        if str(found) != expected_outcome(*cell)
    ]
    assert not wrong, "\n".join(wrong)
    assert len(outcomes) == len(all_cells()) == 1152


def test_differences_are_fewer_than_one_cell_in_eight() -> None:
    different = [cell for cell in all_cells() if (each := difference(*cell)) and each.outcome != kafkas_outcome(*cell)]
    assert len(different) == 89
