"""The loops that benchmarks/bench.py compares do equal work. No timing is judged here."""

from dataclasses import replace

import pytest

from ampcheck.identity import digest
from ampcheck.training import scaler_numbers, train
from benchmarks import bench

CASES = [case for case in bench.cases() if case.batch_size == 16]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_loops_do_the_same(case: bench.Case) -> None:
    """The hand-written loop ends with the bits of ours, so that a ratio compares equal work."""
    ours, batches = case.prepared()
    train(ours, batches, 12)
    by_hand, batches = case.prepared()
    bench.train_by_hand(by_hand, case.mode, batches, 12)

    assert digest(ours.modules["net"].state_dict()) == digest(by_hand.modules["net"].state_dict())
    assert scaler_numbers(ours) == scaler_numbers(by_hand)


def test_every_pair_has_a_ratio() -> None:
    """Without time to spend there are still two ratios, so that the quartiles exist."""
    found = bench.ratios(replace(CASES[0], steps=1), seconds=0)

    assert len(found) == 2
    assert min(found) > 0
