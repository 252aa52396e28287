"""The ledger of tensors: what lives at the peak, of real tensors and of fake ones."""

import gc
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_map, tree_map_only

from ampcheck import launch, params, workloads
from ampcheck.fake_cuda import fake_tensors
from ampcheck.options import Options
from ampcheck.outputs import outputs_of
from ampcheck.precision import MODES
from ampcheck.run import Run, start
from ampcheck.tensors import KINDS, Ledger, peak_of
from ampcheck.training import train
from ampcheck.workloads import Batch, Workload
from tests.helpers import ROOT

CPU = torch.device("cpu")
BUILT_IN = ["mlp", "convnet", "transformer", "gan", "custom_op", "island"]
NAMED = {name: dict(sizes) for name, sizes in params.read(ROOT / "sizes.yaml").items()}
NAMED["mlp"] = NAMED["laptop"]
ON_CPU = ["fp32", "amp-fp16", "amp-bf16"]
EVERYTHING: dict[str, Any] = {"accumulate": 2, "gradient_penalty": 0.1, "clip_norm": 1.0, "zero_grad": "zeros"}
EVERYTHING |= {"optimizer": {"name": "Adam", "amsgrad": True}, "scheduler": {"name": "StepLR", "step_size": 1}}


def built(name: str, **changed: int) -> Workload:
    """A workload that comes with ampcheck, at its named sizes."""
    sizes = {key: value for key, value in NAMED[name].items() if key != "workload"}
    return workloads.load(NAMED[name]["workload"], sizes | changed)


def fresh(workload: Workload, mode: str, **options: Any) -> Run:
    """A run at step 0 whose loss scale overflows nothing."""
    launch.prepare(seed=0, threads=1, deterministic=True)
    scaler = {"init_scale": 1.0} if MODES[mode].scaler else None
    given: dict[str, Any] = {"lr": 0.01, "zero_grad": "set_to_none"} | options
    return start(workload, MODES[mode], CPU, Options(**given), scaler=scaler)


def batches_of(workload: Workload, count: int = 2) -> list[Batch]:
    """Batches as `data.load` returns them."""
    made = [workload.batch(np.random.default_rng(seed)) for seed in range(count)]
    return [tree_map(torch.as_tensor, batch) for batch in made]


def real(workload: Workload, mode: str, **options: Any) -> dict[str, int]:
    """The split at the peak of a run on this CPU."""
    return peak_of(fresh(workload, mode, **options), batches_of(workload), 1)


def faked(workload: Workload, mode: str, granule: int = 1, **options: Any) -> dict[str, int]:
    """The same of fake tensors, under the CPU's rules."""
    batches = batches_of(workload)
    with fake_tensors():
        like = tree_map_only(torch.Tensor, torch.empty_like, batches)
        return peak_of(fresh(workload, mode, **options), like, granule)


def lived(ledger: Ledger) -> list[int]:
    """The bytes that lived after each change."""
    return list(accumulate(grown for _, grown in ledger.events))


@pytest.mark.parametrize("mode", ON_CPU)
@pytest.mark.parametrize("name", BUILT_IN)
def test_fake_tensors_take_what_real_ones_do(name: str, mode: str) -> None:
    """Within 1 %, each kind of them, for every network that comes with ampcheck."""
    workload = built(name, batch_size=8)
    found, expected = faked(workload, mode), real(workload, mode)

    assert sum(found.values()) == pytest.approx(sum(expected.values()), rel=0.01)
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("mode", ON_CPU)
@pytest.mark.parametrize("workload", [built("mlp", batch_size=8), built("gan", batch_size=8)], ids=["mlp", "gan"])
def test_every_option_is_counted_as_well(workload: Workload, mode: str) -> None:
    """Accumulation, penalty, clipping, another optimizer and zeros, for one optimizer and for two."""
    expected = real(workload, mode, **EVERYTHING)

    assert expected["optimizer_state"] > 2.9 * expected["gradients"], "amsgrad keeps three moments"
    assert faked(workload, mode, **EVERYTHING) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("mode", ["fp32", "amp-bf16"])
@pytest.mark.parametrize("name", BUILT_IN)
def test_torchs_profiler_sees_the_same_peak(name: str, mode: str) -> None:
    """Of the CPU's allocator itself, within 1e-5; a convolution's workspace, 10 % of so small a net, is not seen."""
    workload = built(name, batch_size=8)
    run, batches = fresh(workload, mode), batches_of(workload)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        train(run, batches, 2)
    found: Any = profiled.profiler
    events = [event for event in found.kineto_results.events() if event.name() == "[memory]"]
    allocated = max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))
    split = real(workload, mode)
    there_before = split["data"] + split["parameters"]

    assert sum(split.values()) <= allocated + there_before
    assert sum(split.values()) == pytest.approx(allocated + there_before, rel=0.1 if name == "convnet" else 1e-5)


@pytest.mark.parametrize("mode", ON_CPU)
def test_the_kinds_are_what_they_are_called(mode: str) -> None:
    """Data, weights, gradients and Adam's moments have the bytes that can be counted by hand, at the step's peak."""
    workload = built("transformer", batch_size=2)
    split = real(workload, mode, zero_grad="zeros")
    weights = sum(each.nbytes for each in fresh(workload, mode).modules["net"].parameters())

    assert list(split) == list(KINDS)
    assert split["data"] == sum(batch["ids"].nbytes for batch in batches_of(workload))
    assert split["parameters"] == split["gradients"] == weights
    assert split["optimizer_state"] == 2 * weights, "the counts of steps lie on the host"


def test_the_copies_that_autocast_makes_are_a_kind_of_their_own() -> None:
    """While the output is computed there are 16-bit copies of all weights; without autocast there are none."""
    workload = built("mlp", batch_size=8)
    run, batches = fresh(workload, "amp-bf16"), batches_of(workload)
    ledger = Ledger(CPU, 1)
    for weight in run.modules["net"].parameters():
        ledger.take(weight, "parameters")
    with ledger, run.autocast:
        run.workload.losses(run.modules, batches[0])
    weights = sum(each.nbytes for each in run.modules["net"].parameters())

    assert ledger.split_at_peak()["copies_in_16_bits"] == weights / 2
    assert real(workload, "fp32")["copies_in_16_bits"] == 0


def test_the_peak_is_the_same_from_the_second_step_on() -> None:
    """The first makes gradients and the optimizer's state; later ones find them."""
    workload = built("transformer", batch_size=4)
    run, batches = fresh(workload, "amp-bf16", zero_grad="zeros"), batches_of(workload)
    ledger, ends = Ledger(CPU, 1), [0]
    with ledger:
        train(run, batches, 6, lambda: ends.append(len(ledger.events)))
    levels = lived(ledger)
    peaks = [max(levels[first:last]) for first, last in pairwise(ends)]

    assert peaks[0] < peaks[1]
    assert len(set(peaks[1:])) == 1


def test_a_smaller_run_after_a_bigger_one_has_its_own_peak() -> None:
    """The peak belongs to a run, not to the process."""
    big, small = built("mlp", batch_size=64), built("mlp", batch_size=8)
    alone = real(small, "fp32")

    assert sum(real(big, "fp32").values()) > sum(alone.values())
    assert real(small, "fp32") == alone


@pytest.mark.parametrize("mode", ["fp32", "amp-bf16"])
def test_inference_holds_no_more_after_many_batches_than_after_one(mode: str) -> None:
    """Without gradients the copies that autocast caches end with its region."""
    workload = built("mlp", batch_size=8)
    run, [batch] = fresh(workload, mode), batches_of(workload, 1)
    ledger, held = Ledger(CPU, 1), []
    with ledger:
        for _ in range(50):
            outputs_of(run, batch)
            held.append(lived(ledger)[-1])

    assert max(lived(ledger)) > held[0]
    assert len(set(held)) == 1


def test_a_batch_of_one_takes_more_under_autocast() -> None:
    """By the weights' 16-bit copies; halved activations make up for it as the batch grows."""
    differences = []
    for batch_size in (1, 4096):
        workload = built("mlp", batch_size=batch_size)
        split = {mode: faked(workload, mode) for mode in ("fp32", "amp-bf16")}
        differences.append(sum(split["amp-bf16"].values()) - sum(split["fp32"].values()))

    assert differences[0] > 0 > differences[1]


def test_the_cast_of_an_expanded_view_takes_all_its_elements() -> None:
    """Published: 180702208 bytes in float32, 5508148224 under AMP, of which 5412225024 are the copy."""
    with fake_tensors():
        held = torch.empty(1, 41292, 64)
        few = torch.empty(1024, 1, 41292)
        splits = []
        for dtype in (torch.float32, torch.float16):
            ledger = Ledger(CPU, 512)
            ledger.take(held, "parameters")
            with ledger, torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
                torch.bmm(few, held.expand(1024, -1, -1))
            splits.append(ledger.split_at_peak())

    assert [split["copies_in_16_bits"] for split in splits] == [0, 5412225024]
    assert sum(splits[0].values()) < 12_000_000


def test_views_share_and_what_dies_no_longer_counts() -> None:
    """A storage counts once, from its making to the end of its last view; a resized one by its new size."""
    ledger = Ledger(CPU, 512)
    with ledger:
        first = torch.zeros(256)
        view = first.view(16, 16).add_(1)
        del first
        assert lived(ledger)[-1] == 1024
        view.resize_(32, 16)
        assert lived(ledger)[-1] == 2048
        del view
        assert lived(ledger)[-1] == 0
        indices, values = torch.tensor([[0, 1]]), torch.tensor([1.0, 2.0])
        sparse = torch.sparse_coo_tensor(indices, values, (8,), check_invariants=False)
        del indices, values
        assert lived(ledger)[-1] == 2 * 512, "indices and values"
        half = sparse.half()
        del sparse, half
    gc.collect()

    assert lived(ledger)[-1] == 0
    assert min(lived(ledger)) == 0
