"""The shapes of clusters: every size is drawn, and power is lost at any time only where that may lose nothing."""

import pytest

from tests.simulation.cluster_shape import SIZES, THREE, ClusterShape
from tests.simulation.fault_plan import Fault
from tests.simulation.test_cluster_histories import plan_on_any_size, plan_on_any_size_under_transactions

SHAPES = [ClusterShape.drawn(seed) for seed in range(100)]


def test_shapes_of_seeds_have_every_size_with_and_without_harsh_faults() -> None:
    assert {shape.brokers for shape in SHAPES} == set(SIZES)
    assert {(shape.brokers, shape.harsh) for shape in SHAPES} == {(size, harsh) for size in SIZES for harsh in (0, 1)}
    assert {shape.min_insync_replicas for shape in SHAPES if shape.brokers == 2} == {1, 2}


def test_shape_of_a_seed_promises_what_its_faults_demand() -> None:
    for seed, shape in enumerate(SHAPES):
        assert shape.min_insync_replicas <= shape.replication_factor == min(shape.brokers, 3)
        assert shape.survives_any_power_loss or not shape.harsh
        assert {planned.broker_id for planned in plan_on_any_size(seed)} <= set(shape.broker_ids)
        loses_power = Fault.POWER_LOSS in {planned.fault for planned in plan_on_any_size_under_transactions(seed)}
        assert shape.survives_power_loss or not loses_power


def test_shape_whose_minimum_is_lowered_survives_power_loss_only_in_sync() -> None:
    lowered = THREE._replace(may_be_lowered=True)
    assert (lowered.survives_any_power_loss, lowered.survives_power_loss) == (False, True)
    assert lowered._replace(flushes=True).survives_any_power_loss


@pytest.mark.parametrize("brokers", SIZES)
def test_replicas_of_partitions_are_distinct_and_led_by_different_brokers(brokers: int) -> None:
    shape = ClusterShape(brokers, min(brokers, 3))
    replicas = shape.replicas(3)
    assert all(len(set(each)) == shape.replication_factor for each in replicas)
    assert len({each[0] for each in replicas}) == min(brokers, 3)
