"""What can be tried on a CUDA device only, each in a child: a process that has used CUDA can't fork one that does."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import nn

from ampcheck import checkpoint, data, launch, params, state, workloads
from ampcheck.fake_cuda import cuda_rules, fake_tensors
from ampcheck.identity import digest
from ampcheck.meters import Measured, meter_for
from ampcheck.options import Options
from ampcheck.precision import MODES
from ampcheck.probe import find_device
from ampcheck.processes import in_child
from ampcheck.rehearsal import Rehearsal, observe
from ampcheck.run import Run, start
from ampcheck.schema import Params
from ampcheck.tensors import GRANULES, peak_of
from ampcheck.training import train
from ampcheck.trial import run_trial
from ampcheck.workloads import Batch, Workload
from tests.runs import edited

T = TypeVar("T")
ROOT = Path(__file__).parent.parent
CUDA = torch.device("cuda:0")
WITHOUT_SCALER = [name for name, mode in MODES.items() if not mode.scaler]
AMP = [name for name, mode in MODES.items() if mode.autocast]


def child(function: Callable[[], T]) -> T:
    """Run `function` in a process of its own."""
    return in_child(lambda _: function(), "a test on CUDA")


@pytest.fixture(scope="module")
def cuda() -> None:
    """Skip where torch finds no CUDA device."""
    if not child(torch.cuda.is_available):
        pytest.skip("torch sees no CUDA device here")


pytestmark = [
    pytest.mark.cuda,
    pytest.mark.usefixtures("cuda"),
    pytest.mark.filterwarnings("default"),  # what a library warns of on a card that we haven't seen is no failure
]


def mlp(width: int = 64, batch_size: int = 8) -> Workload:
    """The recipe's network with three layers."""
    sizes = {"batch_size": batch_size, "in_size": width, "out_size": width, "num_layers": 3}
    return workloads.load("ampcheck.workloads.mlp:build", sizes)


def with_dropout() -> Workload:
    """The same with dropout, which draws from the device's own generator."""
    plain = mlp()
    return replace(plain, modules=lambda: {"net": nn.Sequential(nn.Dropout(), plain.modules()["net"])})


def fresh(workload: Workload, mode: str, seed: int = 0, **options: Any) -> Run:
    """A run at step 0 on the first device."""
    launch.prepare(seed=seed, threads=1, deterministic=True)
    return start(workload, MODES[mode], CUDA, Options(lr=0.01, zero_grad="set_to_none"), **options)


def random_batch(width: int = 64, batch_size: int = 8) -> Batch:
    """A batch on the device, the same in every process."""
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(batch_size, width, generator=generator).to(CUDA) for name in ("input", "target")}


def test_auto_is_the_first_device() -> None:
    """Where CUDA is, `device: auto` takes it."""
    assert child(lambda: str(find_device("auto"))) == "cuda:0"
    assert child(lambda: str(find_device("cuda"))) == "cuda:0"


@pytest.mark.parametrize("mode", MODES)
def test_matmul_and_convolution_have_the_modes_precision(mode: str) -> None:
    """One setting decides for both, with CUDA in use; cuDNN's own default would be TF32."""

    def found() -> tuple[str, str]:
        fresh(mlp(), mode)
        return torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]

    assert child(found) == (MODES[mode].fp32_precision,) * 2


@pytest.mark.parametrize(("mode", "exact"), [("fp32", True), ("tf32", False)])
def test_the_setting_decides_how_exact_a_matmul_is(mode: str, exact: bool) -> None:
    """TF32 keeps ten bits of a factor's mantissa, float32 twenty-three: errors lie far on both sides of 1e-5."""
    if not exact and child(lambda: torch.cuda.get_device_capability(CUDA)) < (8, 0):
        pytest.skip("TF32 needs compute capability 8.0")

    def error() -> float:
        fresh(mlp(), mode)
        a = torch.rand(512, 512, device=CUDA)
        expected = a.double() @ a.double()
        return ((a @ a - expected).abs() / expected).max().item()

    assert (child(error) < 1e-5) is exact


@pytest.mark.parametrize("mode", WITHOUT_SCALER)
def test_what_is_foreseen_is_counted_and_what_is_counted_is_allocated(mode: str) -> None:
    """Within 1 %, and but for the workspaces of libraries, which torch's allocator gives out too."""

    def counted() -> tuple[int, int]:
        split = peak_of(fresh(mlp(1024, 512), mode), [random_batch(1024, 512)], GRANULES["cuda"])
        return sum(split.values()), torch.cuda.max_memory_allocated(CUDA)

    def foreseen() -> int:
        with cuda_rules(), fake_tensors():
            options = Options(lr=0.01, zero_grad="set_to_none")
            run = start(mlp(1024, 512), MODES[mode], torch.device("cpu"), options)
            batch = {name: torch.empty(512, 1024) for name in ("input", "target")}
            return sum(peak_of(run, [batch], GRANULES["cuda"]).values())

    count, allocated = child(counted)

    assert child(foreseen) == pytest.approx(count, rel=0.01)
    assert count <= allocated <= count + 2**27


@pytest.mark.parametrize("mode", AMP)
def test_the_dtypes_are_the_recipes(mode: str) -> None:
    """Linear layers give the mode's type, the loss is float32."""
    found = child(lambda: observe(fresh(mlp(), mode), random_batch()))

    assert found.dtypes == {"Linear": MODES[mode].dtype, "ReLU": MODES[mode].dtype}
    assert found.losses == ["float32"]


@pytest.mark.parametrize("mode", AMP)
def test_operations_of_ones_own_have_their_types(mode: str) -> None:
    """A Function goes back in the type that it came in, an operator gets float32, an island stays float32."""

    def observed(name: str, **sizes: int) -> Rehearsal:
        workload = workloads.load(f"ampcheck.workloads.{name}:build", sizes)
        run = fresh(workload, mode)
        made = workload.batch(np.random.default_rng(0))
        return observe(run, {key: torch.as_tensor(array).to(CUDA) for key, array in made.items()})

    own = child(lambda: observed("custom_op", batch_size=8, width=16, num_layers=3, num_classes=8))
    island = child(lambda: observed("island", batch_size=8, num_samples=16, num_bins=8, num_bands=8, num_classes=8))

    assert own.dtypes == {"LinearReLU": MODES[mode].dtype, "Linear": MODES[mode].dtype}
    assert own.losses == island.losses == ["float32"]
    assert own.stayed_float32 == []
    assert island.stayed_float32 == ["net.1.bands"]


@pytest.mark.parametrize("mode", WITHOUT_SCALER)
def test_no_step_waits_for_the_device(mode: str) -> None:
    """Without a scaler nothing in the loop synchronises, logging included: torch would raise."""

    def finite() -> bool:
        run, batch, meter = fresh(mlp(), mode), random_batch(), meter_for(CUDA)
        train(run, [batch], 1)
        meter.start()
        torch.cuda.set_sync_debug_mode("error")
        history = train(run, [batch], 5, meter.lap)
        torch.cuda.set_sync_debug_mode("default")
        return math.isfinite(sum(history.losses.tolist()))

    assert child(finite)


def test_events_and_the_wall_clock_agree() -> None:
    """The events' steps add up to the synchronised total, within 2 %."""

    def measured() -> Measured:
        run, batch, meter = fresh(mlp(1024, 512), "fp32"), random_batch(1024, 512), meter_for(CUDA)
        meter.start()
        train(run, [batch], 200, meter.lap)
        return meter.stop()

    found = child(measured)

    assert found.clock == "CUDA events"
    assert len(found.step_seconds) == 200
    assert sum(found.step_seconds) == pytest.approx(found.total_seconds, rel=0.02)
    assert found.peak_bytes is not None
    assert found.peak_reserved_bytes is not None
    assert found.peak_reserved_bytes >= found.peak_bytes > 512 * 1024 * 4


def test_the_scale_is_logged_on_the_device() -> None:
    """Init 128, growth every step, one overflow: as on a CPU."""

    def scales() -> list[float]:
        scaler = {"init_scale": 128.0, "growth_interval": 1}
        run = fresh(mlp(), "amp-fp16", scaler=scaler, overflow_at=frozenset({2}))
        return train(run, [random_batch()], 4).scales.tolist()

    assert child(scales) == [128.0, 256.0, 512.0, 256.0, 512.0]


def test_a_checkpoint_keeps_every_devices_generator(tmp_path: Path) -> None:
    """A network with dropout goes on with the same masks; without the generators' states it does not."""

    def leg(until: int, seed: int, lost: str | None = None) -> tuple[list[float], int, str]:
        run = fresh(with_dropout(), "amp-fp16", seed)
        if lost:
            checkpoint.load_without(lost, run, tmp_path / "state.pt")
        elif seed:
            checkpoint.load(run, tmp_path / "state.pt")
        losses = train(run, [random_batch()], until).losses.tolist()
        if until == 3:
            checkpoint.save(run, tmp_path / "state.pt")
        found = state.get(run)
        return losses, len(found["rng"]["cuda"]), digest(found)

    straight, devices, expected = child(lambda: leg(6, seed=0))
    stopped, *_ = child(lambda: leg(3, seed=0))
    resumed, _, actual = child(lambda: leg(6, seed=1))
    control, *_ = child(lambda: leg(6, seed=1, lost="rng"))

    assert devices == child(torch.cuda.device_count)
    assert stopped + resumed == straight
    assert actual == expected
    assert stopped + control != straight


def test_a_checkpoint_without_this_devices_generator_is_refused(tmp_path: Path) -> None:
    """One of the device for a run on the CPU, or with its entry deleted: an error, never a warning and other draws."""
    path = tmp_path / "state.pt"
    child(lambda: checkpoint.save(fresh(with_dropout(), "fp32"), path))

    def load_on_the_cpu() -> None:
        run = start(with_dropout(), MODES["fp32"], torch.device("cpu"), Options(lr=0.01, zero_grad="set_to_none"))
        checkpoint.load(run, path)

    with pytest.raises(ValueError, match=r"rng/cuda/0: it has uint8 \(16,\), this run has nothing"):
        child(load_on_the_cpu)
    child(lambda: edited(path, lambda found: found["state"]["rng"].pop("cuda")))
    with pytest.raises(ValueError, match="missing: rng/cuda/0"):
        child(lambda: checkpoint.load(fresh(with_dropout(), "fp32"), path))


def test_only_the_child_asks_for_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials leave the parent without a CUDA context, so that the next one can fork."""
    monkeypatch.chdir(tmp_path)
    raw = params.read(ROOT / "params.yaml")
    raw |= {"sizes": {"batch_size": 8, "in_size": 64, "out_size": 64, "num_layers": 3}}
    given = Params.model_validate(raw)
    data.make(Path("data/fixed.safetensors"), mlp(), seed=0, num_batches=50, batch_size=8)
    machine, available = {"threads": 1, "device": "cuda:0"}, {"available": True, "emulated": False, "why": ""}
    results = [run_trial(given, machine, mode, 0, available) for mode in AMP]

    assert [result.trained for result in results] == [True] * len(AMP)
    assert [result.clock for result in results] == ["CUDA events"] * len(AMP)
    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
