"""The largest speed-up, the gap by name and the advice follow from what was measured, and only from that."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ampcheck import evidence
from ampcheck.advice import advice
from ampcheck.decision import switched_on
from ampcheck.files import write_json
from ampcheck.gap import Gap, gaps, steps
from ampcheck.precision import MODES
from ampcheck.summary import summaries
from tests.helpers import ceilings_result, memory_result, write_results
from tests.test_report import BF16, FP32, given, tables, written

TF32 = "tf32"
# Of a float32 step of 10 s, 8 are matmul, at the ceiling; bfloat16's ceiling is four times as high.
OF_FP32 = {"matmul": 8.0, "casts": 0.0, "other": 1.0, "optimizer": 0.5, "scaler": 0.0, "between": 0.5}
OF_BF16 = {"matmul": 3.0, "casts": 1.0, "other": 1.2, "optimizer": 0.5, "scaler": 0.0, "between": 0.3}
RATES = {FP32: 1e6 / 8, BF16: 1e6 / 2, TF32: 1e6 / 2}
MEASURED: dict[str, Any] = {
    FP32: {"parts": OF_FP32, "alone_seconds": 8.0, "flops_per_second": {"matmul": RATES[FP32]}},
    BF16: {"parts": OF_BF16, "alone_seconds": 2.9, "flops_per_second": {"matmul": RATES[BF16]}},
}
Results = Callable[..., evidence.Evidence]


@pytest.fixture
def results(raw: dict[str, Any], tmp_path: Path) -> Results:
    """Return a function that writes results with these ceilings, by mode, and reads them back."""
    raw["data"]["num_batches"], raw["train"]["epochs"] = 3, 1

    def write(
        seconds: dict[str, float] | None = None, compiled: bool = False, activations: int = 5000, **changed: Any
    ) -> evidence.Evidence:
        raw["train"]["compile"] = compiled
        params = given(raw)
        times = {mode: [each] * 3 for mode, each in (seconds or {FP32: 10.0, BF16: 6.0}).items()}
        write_results(tmp_path / "results", params, times)
        for mode in times:
            found = ceilings_result(mode) | MEASURED.get(mode, MEASURED[BF16]) | changed.get(mode, {})
            write_json(tmp_path / "results/ceilings" / f"{mode}.json", found)
            memory = memory_result(mode)
            memory["here"]["split"]["activations"] = activations
            write_json(tmp_path / "results/memory" / f"{mode}.json", memory)
        return evidence.read(params, tmp_path / "results")

    return write


def gap_of(read: evidence.Evidence) -> Gap:
    """The one mode's beside the baseline."""
    [gap] = gaps(read, summaries(read))
    return gap


def lines(read: evidence.Evidence) -> str:
    """The advice."""
    return "\n".join(advice(read, summaries(read)))


def test_the_gap_is_the_sum_of_its_parts(results: Results) -> None:
    """8 s of matmul at a quarter and 2 s as they are: 4 s, which is 2.5 times as fast; 6 s are 2 s more."""
    gap = gap_of(results())

    assert gap.largest_speedup == pytest.approx(10 / 4)
    assert gap.speedup == pytest.approx(10 / 6)
    assert gap.ratio_of_ceilings == pytest.approx(4)
    assert gap.eligible_share == pytest.approx(0.8)
    assert gap.seconds == pytest.approx(2.0)
    expected = {"shapes": 0.9, "casts": 1.0, "other": 0.2, "optimizer": 0.0, "scaler": 0.0, "between": -0.2}
    assert gap.parts == pytest.approx(expected)
    assert gap.unexplained_seconds == pytest.approx(0.1)
    assert gap.unexplained_share == pytest.approx(0.1 / 2)
    assert gap.unexplained_share_below == pytest.approx(0.1 / 4)


def test_the_profiled_step_is_scaled_to_the_timed_one(results: Results) -> None:
    """Twice as long under the profiler: the same parts of a step."""
    slow = {"parts": {part: 2 * seconds for part, seconds in OF_BF16.items()}, "alone_seconds": 5.8}
    read = results(**{BF16: slow})

    assert gap_of(read).parts == pytest.approx(gap_of(results()).parts)
    assert sum(steps(read, summaries(read))[BF16].parts.values()) == pytest.approx(6.0)


@pytest.mark.parametrize(("alone", "doubted"), [(2.9, False), (2.5, True), (3.5, True)])
def test_more_than_a_tenth_without_a_cause_is_a_doubt(
    results: Results, tmp_path: Path, alone: float, doubted: bool
) -> None:
    """Matmuls that take longer in the step than alone, or shorter."""
    read = results(**{BF16: {"alone_seconds": alone}})

    assert ("has no measured cause" in written(read.params, tmp_path)) == doubted


def test_more_than_the_largest_speed_up_is_a_doubt(results: Results, tmp_path: Path) -> None:
    """It can't be: something was measured while the machine was busy."""
    text = written(results({FP32: 10.0, BF16: 3.0}).params, tmp_path)

    assert "- amp-bf16: it is faster than the largest speed-up that its ceilings leave room for, 2.50; if the" in text


def test_a_compiled_step_is_not_taken_apart(results: Results, tmp_path: Path) -> None:
    """The report says so."""
    read = results(compiled=True)

    assert gaps(read, summaries(read)) == []
    assert "A step was not taken apart: a compiled step's kernels" in written(read.params, tmp_path)


def test_without_a_baseline_or_flops_nothing_is_compared(results: Results) -> None:
    """No division by what is not there."""
    read = results({BF16: 6.0})
    assert gaps(read, summaries(read)) == []

    empty = {"step_flops": {}, "flops_by_dtype": {}, "alone_seconds": 0.0}
    gap = gap_of(results(**{FP32: empty, BF16: empty}))
    assert gap.largest_speedup == 1.0


def test_the_report_prints_it(results: Results, tmp_path: Path) -> None:
    """Ceilings, parts, gap and unexplained rest, each in a table."""
    shape: dict[str, Any] = {"kind": "matmul", "operation": "mm", "operands": "8 x 8, 8 x 8", "dtype": "bfloat16"}
    shape |= {"calls": 3, "flops": 10**9, "seconds": 0.5}
    text = written(results(**{BF16: {"shapes": [shape] * 5}}).params, tmp_path)
    rows = [line for table in tables(text) for line in table if line.startswith("| `amp-bf16` |")]

    assert "| `amp-bf16` | mm | 8 x 8, 8 x 8 | bfloat16 | 3 | 2.00 GFLOP/s |" in rows
    assert sum("| mm |" in row for row in rows) == 3
    assert "| `amp-bf16` | 6.00 s | 3.00 s | 1.00 s | 1.20 s | 500 ms | 0 µs | 300 ms |" in rows
    assert [
        row
        for row in rows
        if "| 80 % | 4.00 | 2.50 | 1.67 | 2.00 s | 900 ms |" in row and "100 ms (5 %, 2.5 %) |" in row
    ]
    assert [row for row in rows if "| 33.3 % | ieee |" in row]


def test_where_all_is_well_nothing_is_advised(results: Results, tmp_path: Path) -> None:
    """Not a line, and the code of the mode to use."""
    read = results()
    text = written(read.params, tmp_path)

    assert lines(read) == ""
    assert "Nothing that was measured calls for a change." in text
    assert '```python\nwith torch.autocast("cpu", dtype=torch.bfloat16):\n    loss = ...' in text


def test_a_tiny_network_is_not_bound_by_its_device(results: Results, tmp_path: Path) -> None:
    """Most of its time lies between operations; no speed-up is claimed, and no code is given."""
    tiny = {"parts": OF_FP32 | {"matmul": 1.0, "between": 7.5}, "alone_seconds": 1.0}
    read = results({FP32: 10.0, BF16: 14.0}, **{FP32: tiny, BF16: tiny})

    assert "amp-bf16: for 75 % of a step no operation runs: the device waits for the host, and is not" in lines(read)
    text = written(read.params, tmp_path)
    assert "Stay with fp32 here" in text
    assert "```python" not in text


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ([0.8, 0.81, 0.79], "10 % less here (95 % interval -11 to -8.7 %, 3 pairs): pad it."),
        ([1.25, 1.26, 1.24], "12 % more here (95 % interval +11 to +14 %, 3 pairs): leave it."),
        ([1.0, 1.001, 0.999], "interval -0.12 to +0.12 %, 3 pairs): that is not worth it here."),
        ([0.5, 1.5, 1.0], "3 pairs): more than these pairs can tell."),
    ],
)
def test_the_cost_of_an_odd_dimension_is_told(results: Results, factors: list[float], said: str) -> None:
    """By the interval of pairs: what to do, or that they can't tell; for modes with other matmuls than float32's."""
    odd = {"paddings": {"30521": {"flops_share": 1.0, "as_is_seconds": [1.0] * 3, "padded_seconds": factors}}}
    both = lines(results(**{FP32: odd, BF16: odd}))

    assert "amp-bf16: a matmul has a dimension of 30521, no multiple of 8: with 30528 a step takes " in both
    assert said in both
    assert "fp32: " not in both
    assert "30521" not in lines(results(**{BF16: odd | {"disturbed": ["its threads waited"]}}))


def test_a_profiled_step_unlike_the_timed_ones_is_a_doubt(results: Results, tmp_path: Path) -> None:
    """Its parts, scaled, may be another machine's."""
    slow = {part: 1.5 * seconds for part, seconds in OF_BF16.items()}
    text = written(results(**{BF16: {"parts": slow, "alone_seconds": 4.35}}).params, tmp_path)

    assert "- amp-bf16: its profiled steps took 1.5 times as long as the timed ones; if the machine was busy" in text
    assert "- fp32: its profiled" not in text


def test_memory_has_one_bandwidth(results: Results) -> None:
    """The best that any mode's process saw."""
    moves = {"moved_bytes": 2.7 * 7.5e9, "bytes_per_second": 1e10}

    assert "GB/s" not in lines(results(**{BF16: moves, FP32: {"bytes_per_second": 1e11}}))


def test_what_moves_much_memory_is_bound_by_it(results: Results) -> None:
    """2.7 of 6 s, at three quarters of the bandwidth."""
    moves = {"moved_bytes": 2.7 * 7.5e9, "bytes_per_second": 1e10}

    assert "amp-bf16: 45 % of a step moves 7.5 GB/s, where a copy reaches 10: memory" in lines(results(**{BF16: moves}))


def test_weights_that_fill_the_memory_are_named(results: Results) -> None:
    """Where most of what lives is no activations, the copies of the weights take what AMP saves."""
    assert lines(results(activations=200)) == (
        "amp-bf16: weights, their copies and gradients and the optimizer's state are 83 % of the tensors' peak less "
        "the data: AMP halves activations only, which larger batches have more of."
    )


def test_tf32_that_is_close_is_named(results: Results) -> None:
    """Only if it is close."""
    assert "tf32 alone has 95 % of the fastest AMP mode's speed" in lines(results({FP32: 10, TF32: 6.3, BF16: 6.0}))
    assert "tf32" not in lines(results({FP32: 10, TF32: 8.0, BF16: 6.0}))


def test_slow_shapes_float32_and_waits_are_named(results: Results) -> None:
    """Each with its number; a line of the workload is told once for all modes."""
    waits = {"waits": {"item() in my_network.py, line 12": 2}}
    bad = {"alone_seconds": 5.0, "flops_by_dtype": {"bfloat16": 3, "float32": 1}} | waits
    said = lines(results(**{FP32: waits, BF16: bad}))

    assert "amp-bf16: alone, its matmuls and convolutions reach 40 % of the rate that large ones have here" in said
    assert "amp-bf16: 25 % of its FLOPs run in float32, not in bfloat16" in said
    assert said.count("item() in my_network.py, line 12, 2 in a step: the host waits") == 1


def test_a_device_without_sixteen_bits_is_named(results: Results) -> None:
    """With the rate that emulation has."""
    read = results({FP32: 10.0})
    emulated = {"available": True, "emulated": True, "slowdown": 40.0, "why": "slow"}
    read = replace(read, modes=read.modes | {BF16: emulated})

    assert "no hardware for 16-bit matmul here (amp-bf16 at 0.025 times float32's matmul rate)" in lines(read)


@pytest.mark.parametrize("mode", ["amp-fp16", "amp-bf16"])
def test_the_code_that_switches_a_mode_on_does(mode: str) -> None:
    """Run as it stands, with a network's loss in the place of the dots."""
    net = torch.nn.Linear(4, 4)
    before = net.weight.detach().clone()
    outputs: list[torch.Tensor] = []

    def forward() -> torch.Tensor:
        outputs.append(net(torch.ones(2, 4)))
        return outputs[0].float().mean()

    known = {"torch": torch, "optimizer": torch.optim.SGD(net.parameters(), lr=0.1), "forward": forward}
    exec("\n".join(switched_on(MODES[mode], "cpu")).replace("...", "forward()"), known)

    assert outputs[0].dtype == getattr(torch, MODES[mode].dtype)
    assert torch.equal(net.weight, before) != MODES[mode].scaler


def test_tf32_is_one_line() -> None:
    """It needs no autocast."""
    assert switched_on(MODES[TF32], "cuda:0") == ['torch.backends.fp32_precision = "tf32"  # once']
    assert switched_on(MODES["amp-fp16"], "cuda:1")[0] == 'scaler = torch.amp.GradScaler("cuda")  # once'
