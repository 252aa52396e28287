"""The networks that come with ampcheck: each goes through the same door, in every mode that a CPU has."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ampcheck import checkpoint, data, launch, state, workloads
from ampcheck.identity import differing, leaves
from ampcheck.options import Options
from ampcheck.precision import MODES
from ampcheck.rehearsal import observe
from ampcheck.run import Run, start
from ampcheck.training import scaler_numbers, train
from ampcheck.workloads import Batch, Workload

CPU = torch.device("cpu")
TINY: dict[str, dict[str, Any]] = {
    "mlp": {"batch_size": 4, "in_size": 8, "out_size": 6, "num_layers": 2},
    "convnet": {"batch_size": 4, "image_size": 6, "channels": 4, "num_blocks": 1, "num_classes": 3},
    "transformer": {"batch_size": 2, "length": 5, "vocabulary": 11, "width": 8, "num_heads": 2, "num_layers": 1},
    "gan": {"batch_size": 4, "noise_size": 3, "sample_size": 6, "width": 8},
    "custom_op": {"batch_size": 4, "width": 8, "num_layers": 3, "num_classes": 3},
    "island": {"batch_size": 4, "num_samples": 8, "num_bins": 6, "num_bands": 5, "num_classes": 3},
    "stateful": {"batch_size": 4, "width": 8, "optimizer": "SGD", "keywords": {"momentum": 0.9}, "scheduled": True},
}
ISLANDS = {"island": ["net.1.bands"]}  # modules that a workload keeps in float32
ON_CPU = [name for name, mode in MODES.items() if mode.fp32_precision == "ieee"]


def built(name: str, **sizes: Any) -> Workload:
    """One of the built-in workloads, tiny."""
    return workloads.load(f"ampcheck.workloads.{name}:build", TINY[name] | sizes)


def fresh(workload: Workload, mode: str, seed: int = 0) -> Run:
    """A run at step 0."""
    launch.prepare(seed=seed, threads=1, deterministic=True)
    scaler = {"init_scale": 128.0} if MODES[mode].scaler else None
    return start(workload, MODES[mode], CPU, Options(lr=0.01, zero_grad="set_to_none"), scaler=scaler)


def made(workload: Workload, folder: Path, batch_size: int) -> list[Batch]:
    """Batches that went through the data file."""
    data.make(folder / "data", workload, seed=0, num_batches=3, batch_size=batch_size)
    return data.load(folder / "data", CPU, num_batches=3)


@pytest.mark.parametrize("mode", ON_CPU)
@pytest.mark.parametrize("name", TINY)
def test_it_resumes_to_the_same_bits(name: str, mode: str, tmp_path: Path) -> None:
    """From its own data file, through a stop, whatever its modules, inputs, losses and optimizers are."""
    workload = built(name)
    batches = made(workload, tmp_path, TINY[name]["batch_size"])
    straight = fresh(workload, mode)
    losses = train(straight, batches, 6).losses.tolist()
    expected = leaves(state.get(straight))
    stopped = fresh(workload, mode)
    train(stopped, batches, 3)
    checkpoint.save(stopped, tmp_path / "a.pt")
    resumed = fresh(workload, mode, seed=1)
    told = checkpoint.load(resumed, tmp_path / "a.pt")

    assert train(resumed, batches, 6).losses.tolist() == losses[3:]
    assert differing(expected, leaves(state.get(resumed))) == told == []


@pytest.mark.parametrize("mode", ON_CPU)
@pytest.mark.parametrize("name", TINY)
def test_parameters_and_moments_stay_float32(name: str, mode: str, tmp_path: Path) -> None:
    """Autocast computes in 16 bits where it can; what is trained, and what trains it, is never rounded to them."""
    workload = built(name)
    run = fresh(workload, mode)
    seen = observe(run, made(workload, tmp_path, TINY[name]["batch_size"])[0])
    island = ISLANDS.get(name, []) if MODES[mode].autocast else []
    kept = [leaf for part in ("modules", "optimizers") for leaf in _tensors(state.PARTS[part].get(run))]

    assert {leaf.dtype for leaf in kept if leaf.is_floating_point()} == {torch.float32}
    assert seen.dtypes["Linear"] == ", ".join([MODES[mode].dtype] + ["float32"] * len(island))
    assert set(seen.losses) <= {"float32", MODES[mode].dtype}
    assert seen.stayed_float32 == island


@pytest.mark.parametrize("name", ["mlp", "convnet", "transformer", "gan", "custom_op", "island"])
def test_wrong_sizes_are_named_all_at_once(name: str) -> None:
    """Each is told with what came."""
    keys = [key for key in TINY[name] if key != "batch_size"]
    with pytest.raises(ValueError, match="an integer of at least 1") as caught:
        built(name, **dict.fromkeys(keys, 0))

    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == [f"sizes.{key}" for key in keys]


def test_heads_must_divide_the_width() -> None:
    """The way out is in the message."""
    with pytest.raises(ValueError, match=r"sizes.width: got 8; a multiple of sizes.num_heads, 3"):
        built("transformer", num_heads=3)


def test_a_transformer_sees_no_later_token() -> None:
    """The logits of a position do not depend on the ids behind it."""
    run = fresh(built("transformer"), "fp32")
    ids = torch.arange(5).repeat(2, 1)
    later = ids.clone()
    later[:, 3:] += 1
    before, after = run.modules["net"](ids), run.modules["net"](later)

    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3:], after[:, 3:])


def test_two_optimizers_share_one_scaler(tmp_path: Path) -> None:
    """Four iterations without overflow: the tracker is 4, since the scaler is updated once in each."""
    workload = built("gan")
    run = fresh(workload, "amp-fp16")
    train(run, made(workload, tmp_path, 4), 4)

    assert scaler_numbers(run)["growth_tracker"] == 4


def test_the_generators_loss_leaves_the_discriminator_alone(tmp_path: Path) -> None:
    """Each network's gradients come from its own loss."""
    workload = built("gan")
    run = fresh(workload, "fp32")
    _, of_generator = workload.losses(run.modules, made(workload, tmp_path, 4)[0])
    of_generator.backward()  # type: ignore[no-untyped-call]

    assert all(parameter.grad is None for parameter in run.modules["discriminator"].parameters())
    assert all(parameter.grad is not None for parameter in run.modules["generator"].parameters())


def _tensors(node: Any) -> list[torch.Tensor]:
    from ampcheck.identity import walk

    return [leaf for _, leaf in walk(node) if isinstance(leaf, torch.Tensor)]
