"""The numbers' health: what 16 bits lose, how much room there is, and what the report says of it."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ampcheck import data, evidence, workloads
from ampcheck.files import read_json, write_json
from ampcheck.findings import findings
from ampcheck.magnitudes import Tally
from ampcheck.numerics import Numerics, examine, first_scale
from ampcheck.numerics_tables import scale_story, unsafe
from ampcheck.probabilities import Probabilities
from ampcheck.schema import Params
from ampcheck.training import scale_changes, train
from ampcheck.trial import run_trial
from tests.helpers import write_results
from tests.runs import batches, broken, fresh
from tests.test_report import given, tables, written

FP16, BF16 = "amp-fp16", "amp-bf16"
MACHINE = {"device": "cpu", "threads": 1}
HERE = {"available": True, "emulated": True, "why": ""}
Examine = Callable[..., Numerics]


@pytest.fixture
def examined(raw: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Return a function that examines a kind of broken workload in a mode."""
    monkeypatch.setattr(data, "PATH", tmp_path / "data")
    return lambda kind, mode, available=HERE: examine(broken(raw, kind), MACHINE, mode, available)


def test_gradients_that_underflow_without_a_scaler_are_named(examined: Examine) -> None:
    """Nearly all without scaling, none with it; bfloat16 has room for them, and a larger first scale is told."""
    found = {each.name: each for each in examined("underflow", FP16).of_parameters}
    weight = found["net.0.weight"]
    in_bfloat16 = examined("underflow", BF16).of_parameters

    assert weight.zero_unscaled is not None
    assert weight.zero_unscaled > 0.9
    assert weight.zero_scaled == 0.0
    assert weight.headroom is not None
    assert weight.headroom > 1e6
    assert [(each.zero_unscaled, each.zero_scaled) for each in in_bfloat16] == [(0.0, None)] * 2
    assert examined("underflow", FP16).first_scale == 2.0**24


def test_sound_numbers_are_safe(examined: Examine) -> None:
    """Nothing is lost, and the first scale leaves room above the largest gradient."""
    found = examined("well", FP16)
    largest = max(each.largest for each in [*found.of_parameters, *found.of_outputs])

    assert unsafe(asdict(found)) == []
    assert found.scale_changes == [(0, 65536.0)]
    assert found.first_scale is not None
    assert 65504 / 8 < found.first_scale * largest <= 65504 / 4


def test_an_overflow_is_unsafe_whatever_becomes_of_it(examined: Examine) -> None:
    """The operation, the module and the magnitude, which bfloat16 holds."""
    found = examined("overflow", FP16)

    assert found.overflows[0].module == "net.1"
    assert unsafe(asdict(found))[1].startswith("pow in net.1 (broken_workloads.py, line ")
    assert unsafe(asdict(examined("overflow", BF16))) == []


def test_probabilities_in_sixteen_bits_are_named_even_where_nothing_breaks(examined: Examine) -> None:
    """In bfloat16 the loss is finite, and its gradients are lost in silence."""
    found = examined("probabilities", BF16)

    assert found.broken == ""
    assert "binary cross entropy of probabilities in 16 bits (broken_workloads.py, line " in unsafe(asdict(found))[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_only_probabilities_in_sixteen_bits_are_told_of(dtype: torch.dtype) -> None:
    """By the module or by the function."""
    chances = torch.tensor([0.25, 0.75], dtype=dtype)
    with Probabilities() as seen, torch.autocast("cpu", dtype=torch.bfloat16):
        nn.BCELoss()(chances, torch.ones(2))
        nn.functional.binary_cross_entropy(input=chances, target=torch.ones(2))

    assert len(seen.lines) == (0 if dtype == torch.float32 else 2)


def test_a_parameter_without_a_gradient_is_found_and_verify_fails(
    examined: Examine, raw: dict[str, Any], tmp_path: Path
) -> None:
    """Such a mode trains another network than float32 does."""
    found = examined("copy", BF16)
    params = given(raw | {"sizes": {"batch_size": 8}}, repeats=1)
    write_results(tmp_path / "results", params, {"fp32": [2.0], BF16: [1.0]})
    write_json(tmp_path / f"results/numerics/{BF16}.json", found)

    assert found.without_gradient == ["net.1.weight"]
    assert findings(evidence.read(params, tmp_path / "results")) == [
        "amp-bf16: parameters without a gradient that have one in float32: net.1.weight"
    ]


def test_what_is_not_examined_has_a_reason(examined: Examine) -> None:
    """A mode of float32, and one that this device lacks."""
    assert examined("well", "fp32").why == "it computes in float32"
    assert examined("well", FP16, {"available": False, "emulated": False, "why": "not here"}).why == "not here"


def test_a_gradient_is_lost_where_the_cast_makes_zero_of_it() -> None:
    """Float16 ends at 2^-24, and rounds half of that to zero; numbers that are zero already are none."""
    tally = Tally()
    tally.add(torch.tensor([0.0, 2.0**-24, 2.0**-25, -(2.0**-26), 1.0]), torch.float16, 2.0)
    tally.add(torch.tensor([torch.nan, 3.0]), torch.float16, 2.0)

    assert (tally.largest, tally.nonzero, tally.zero_unscaled, tally.zero_scaled) == (1.0, 4, 2, 1)


@pytest.mark.parametrize(
    ("largest", "expected"), [(0.25, 2.0**15), (1e-9, 2.0**24), (1e6, 2.0**-6), (0.0, None), (65504 / 4, 1.0)]
)
def test_a_first_scale_leaves_room(largest: float, expected: float | None) -> None:
    """A power of two, a quarter of what would overflow or less."""
    assert first_scale(largest, "float16") == expected


def test_a_loss_scale_is_told_by_its_skips_and_growths() -> None:
    """Published by torch: 128 with interval 1, four steps of which one overflows, ends at 512."""
    changes = scale_changes([128.0, 256.0, 128.0, 256.0, 512.0])

    assert changes == [(0, 128.0), (1, 256.0), (2, 128.0), (3, 256.0), (4, 512.0)]
    assert scale_story(changes) == "began at 128; skipped 1 step (1); grew after 3 steps (0, 2, 3); ended at 512"
    assert scale_story(scale_changes([8.0, 8.0])) == "began at 8; skipped 0 steps; grew after 0 steps; ended at 8"
    assert scale_story([]) == ""


@pytest.mark.parametrize(("kind", "broke_at"), [("overflow", 0), ("well", None)])
def test_a_trial_tells_where_it_broke_and_how_its_scale_went(
    kind: str, broke_at: int | None, raw: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the stage `diagnose` goes by, and what the report shows."""
    monkeypatch.setattr(data, "PATH", tmp_path / "data")
    sizes = {"batch_size": 8, "kind": kind}
    raw |= {"workload": "tests.broken_workloads:build", "sizes": sizes}
    params = Params.model_validate(raw)
    data.make(data.PATH, workloads.load(params.workload, sizes), seed=0, num_batches=4, batch_size=8)
    result = run_trial(params, MACHINE, FP16, 0, HERE | {"emulated": False})

    assert (result.broke_at, result.trained) == (broke_at, broke_at is None)
    assert result.scale_changes[:1] == ([(0, 65536.0)] if result.trained else [])


@pytest.mark.parametrize(("mode", "foreign"), [(BF16, torch.float16), (FP16, torch.bfloat16), ("fp32", torch.float16)])
def test_no_step_computes_in_another_sixteen_bit_type(mode: str, foreign: torch.dtype) -> None:
    """Forward, backward and the optimizer: backward keeps to the types of its forward."""
    seen: set[torch.dtype] = set()

    class Dtypes(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            seen.update(leaf.dtype for leaf in [result] if isinstance(leaf, torch.Tensor))
            return result

    run = fresh(mode=mode)
    with Dtypes():  # type: ignore[no-untyped-call]
        train(run, batches(), 2)

    assert torch.float32 in seen
    assert foreign not in seen


@pytest.mark.parametrize("mode", [BF16, FP16])
def test_amp_converges_as_float32_does(mode: str) -> None:
    """Its weights stay float32: a line is learned down to the noise that was put on it, as it is without AMP."""
    losses = {}
    for each in ("fp32", mode):
        run = fresh(mode=each, workload=line(), lr=0.1, overflow_at=frozenset())
        x = torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
        noise = 0.1 * torch.randn(64, 1, generator=torch.Generator().manual_seed(1))
        losses[each] = train(run, [{"x": x, "y": 3 * x + 1 + noise}], 100).losses.tolist()

    assert losses["fp32"][-1] < losses["fp32"][0] / 100
    assert losses[mode][-1] == pytest.approx(losses["fp32"][-1], rel=0.01)


def line() -> workloads.Workload:
    """A linear layer with one input and one output."""
    return workloads.Workload(
        modules=lambda: {"net": nn.Linear(1, 1)},
        batch=lambda _: {},
        losses=lambda modules, batch: [nn.functional.mse_loss(modules["net"](batch["x"]).float(), batch["y"])],
        optimizers=lambda modules, lr: {"sgd": torch.optim.SGD(modules["net"].parameters(), lr=lr)},
    )


def test_the_report_shows_the_numbers_health(raw: dict[str, Any], tmp_path: Path) -> None:
    """A row for each mode of 16 bits, the scale's story of the trial, and the gradients that lose most."""
    params = given(raw, repeats=1)
    changed = {"scale_changes": {FP16: [(0, 65536.0), (1, 32768.0)]}}
    write_results(tmp_path / "results", params, {"fp32": [2.0], FP16: [1.0], BF16: [1.0]}, **changed)
    text = written(params, tmp_path)

    assert "| `amp-fp16` | yes | 8 rows | 3.50 of net.0 | 100 of output of net.0 | 65536 |" in text
    assert "| `amp-bf16` | yes | 8 rows | 3.50 of net.0 | 100 of output of net.0 | n/a |" in text
    assert "the loss scale began at 65536; skipped 1 step (0); grew after 0 steps; ended at 32768." in text
    assert "| `amp-fp16` | net.0.weight | 0.0100 | 12.5 % | 0 % | 100 |" in text
    assert "Where it breaks" not in text


def test_the_report_shows_a_diagnosis_with_its_code(raw: dict[str, Any], tmp_path: Path) -> None:
    """Sentences, and python that nothing has escaped."""
    params = given(raw, repeats=1)
    write_results(tmp_path / "results", params, {"fp32": [2.0], FP16: [1.0]})
    row = {"mode": FP16, "why": "", "steps": 24, "rows": 8, "verdict": "Autocast to float16 is to blame."}
    place: dict[str, Any] = {
        "culprit": None,
        "gradient": "net.0.weight",
        "probabilities": [],
        "refused": None,
        "error": "",
    }
    row |= {"tried": {"as it is": "the loss is nan at step 0", "autocast off": ""}, "place": place}
    row |= {"islands": ["net.1"], "code": 'modules["net"]  # <island>'}
    write_json(tmp_path / f"results/diagnose/{FP16}.json", row)
    text = written(params, tmp_path)

    assert "## Where it breaks\n" in text
    assert "- amp-fp16, 24 steps on 8 rows, as it is: the loss is nan at step 0.\n" in text
    assert '```python\nmodules["net"]  # <island>\n```\n' in text
    assert all(len({line.replace("\\|", "").count("|") for line in table}) == 1 for table in tables(text))
    assert read_json(tmp_path / "results/numerics/fp32.json")["why"] == "not examined"
