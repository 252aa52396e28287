"""What benchmarks/bench.py compares does equal work. No timing is judged here."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ampcheck import checkpoint
from ampcheck.identity import digest, leaves
from ampcheck.training import scaler_numbers, train
from benchmarks import bench, pairs, saving

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


@pytest.mark.parametrize("optimizer", saving.OPTIMIZERS)
def test_both_ways_of_saving_hold_the_same(optimizer: str, tmp_path: Path) -> None:
    """Our file and torch's have the same leaves, an optimizer's buffers among them, before and after every loading."""
    compared = saving.compared(saving.trained(16, optimizer), tmp_path)
    for ours, raw in compared.values():
        assert len(pairs.ratios(ours, raw, seconds=0)) == 2
        ours_holds = leaves(checkpoint.read(tmp_path / "ours.pt").state)

        assert ours_holds == leaves(torch.load(tmp_path / "raw.pt", weights_only=True))
        assert {"optimizers/all/state/0/momentum_buffer", "optimizers/all/state/0/exp_avg"} & set(ours_holds)
