"""The resume drill: all is well where it is, and what is not well is noticed."""

import io
import itertools
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ampcheck import checkpoint, data, kills, stops
from ampcheck.across import across
from ampcheck.controls import EARLY, NEED_A_SCALER, controls
from ampcheck.drill import run_drill
from ampcheck.precision import MODES
from ampcheck.processes import KilledError, in_child
from ampcheck.reference import OVERFLOW_AT, SCALER, SIZES, STEPS, STOP, Reference, Setup, record
from ampcheck.run import Run
from ampcheck.runaway import SKIPS_IN_A_ROW, RunawayError
from ampcheck.scales import first_scales
from ampcheck.schema import Params
from ampcheck.training import scaler_numbers, skipped_steps, train
from ampcheck.trial import run_trial
from ampcheck.tryout import try_out
from ampcheck.workloads import Workload

MACHINE = {"device": "cpu", "threads": 1}
RUNNABLE = [name for name, mode in MODES.items() if mode.fp32_precision == "ieee"]
SCALED = "amp-fp16"
BOTH_WAYS: list[tuple[str, dict[str, Any]]] = [("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {})]
OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [("SGD", {}), *BOTH_WAYS]
# Of SGD with momentum the fused form is refused under a scaler, and is tried without one.
OPTIMIZERS += [(name, keywords | {way: True}) for name, keywords in BOTH_WAYS for way in ("fused", "foreach")]


@pytest.fixture
def setup(tiny_params: Params, tmp_path: Path) -> Setup:
    """The drill's default network, with its data."""
    return prepared(Setup(tiny_params, MACHINE, tmp_path))


def prepared(setup: Setup) -> Setup:
    """The same, with its data made."""
    setup.make_data()
    return setup


@pytest.mark.parametrize("scheduled", [True, False], ids=["scheduled", "constant"])
@pytest.mark.parametrize(("optimizer", "keywords"), OPTIMIZERS, ids=str)
@pytest.mark.parametrize("mode", RUNNABLE)
def test_every_stop_is_bit_exact(
    tiny_params: Params, tmp_path: Path, mode: str, optimizer: str, keywords: dict[str, Any], scheduled: bool
) -> None:
    """Whatever the mode, the optimizer and the schedule: each state, loaded into fresh objects, gives the next one."""
    if MODES[mode].scaler and optimizer == "SGD" and "fused" in keywords:
        keywords = {"fused": True}
    sizes = SIZES | {"optimizer": optimizer, "keywords": keywords, "scheduled": scheduled}
    setup = prepared(Setup(tiny_params, MACHINE, tmp_path, sizes))
    reference = record(setup, mode)
    found = stops.every_stop(setup, mode, reference)

    assert [stop["stop"] for stop in found] == list(range(STEPS))
    assert [stop for stop in found if not stop["bit_exact"]] == []
    assert stops.same_save_points(reference)


@pytest.mark.parametrize("mode", RUNNABLE)
def test_every_loss_of_a_part_is_noticed(setup: Setup, mode: str) -> None:
    """A leaf or a loss gives it away; only what a scaler needs can't matter without one, and that is said."""
    found = {control["part"]: control for control in controls(setup, mode, record(setup, mode), bit_exact=True)}
    cannot_matter = [part for part, control in found.items() if not control["matters"]]

    assert set(cannot_matter) == {"gradients", *(() if MODES[mode].scaler else NEED_A_SCALER)}
    for part in set(found) - set(cannot_matter):
        assert found[part]["caught"], part
        assert all("/" in by or by == "step" or by.startswith("the loss of step ") for by in found[part]["by"])
    for part in cannot_matter:
        why_not = "dropped after every step" if part == "gradients" else "no scaler"
        assert found[part] == {"part": part, "matters": False, "why_not": why_not, "caught": False, "by": []}


def test_what_gave_a_lost_part_away_is_where_it_acts(setup: Setup) -> None:
    """The first loss after the stop shows lost weights and draws; what acts on no loss shows as a leaf."""
    by = {control["part"]: control["by"] for control in controls(setup, SCALED, record(setup, SCALED), bit_exact=True)}

    assert by["modules"] == by["rng"] == ["modules/net/0.weight", f"the loss of step {STOP}"]
    assert by["step"] == ["modules/net/0.weight", "the loss of step 0"]
    assert by["schedulers"] == ["schedulers/net/last_epoch"]
    assert by["buffers"] == ["modules/net/1.running_mean"]
    assert by[EARLY] == ["modules/net/0.weight", "the loss of step 7"]


def test_nothing_is_caught_where_plain_resumes_are_not_exact(setup: Setup) -> None:
    """Other bits prove nothing then, but what differs is told all the same."""
    found = controls(setup, SCALED, record(setup, SCALED), bit_exact=False)

    assert not any(control["caught"] for control in found)
    assert all(control["by"] for control in found if control["matters"])


@pytest.mark.parametrize("mode", RUNNABLE)
def test_every_stop_is_bit_exact_where_gradients_become_zeros(setup: Setup, mode: str) -> None:
    """Where there is a gradient of zero is part of the state: momentum moves a weight that a step does not use."""
    train_section = setup.params.train.model_copy(update={"zero_grad": "zeros"})
    other = replace(setup, params=setup.params.model_copy(update={"train": train_section}))
    reference = record(other, mode)

    assert all(stop["bit_exact"] for stop in stops.every_stop(other, mode, reference))
    [lost] = [each for each in controls(other, mode, reference, bit_exact=True) if each["part"] == "gradients"]
    assert lost["caught"]


@pytest.mark.parametrize("mode", RUNNABLE)
def test_named_stops_are_what_they_say(setup: Setup, mode: str) -> None:
    """The scale is lower right after a skip and higher on a growth boundary; without a scaler there is neither."""
    reference = record(setup, mode)
    named = stops.named_stops(reference)
    scales = reference.scales

    assert (named["before the first step"], named["before the last step"]) == (0, STEPS - 1)
    assert len(scales) == len(reference.leaves) == STEPS + 1
    if not MODES[mode].scaler:
        assert named["right after a skip"] is named["on a growth boundary"] is None
        assert set(scales) == {1.0}
        return
    skip, growth = named["right after a skip"], named["on a growth boundary"]
    assert skip is not None
    assert growth is not None
    assert scales[skip] == scales[skip - 1] * 0.5
    assert scales[growth] == pytest.approx(scales[growth - 1] * SCALER["growth_factor"], rel=1e-6)
    assert skip - 1 == min(OVERFLOW_AT)
    assert len(skipped_steps(scales)) == len(OVERFLOW_AT)


def test_a_save_between_step_and_update_is_another_state(setup: Setup) -> None:
    """The two save points of the recipe are one state, and this can fail."""
    reference = record(setup, SCALED)
    early = Reference(reference.losses, reference.scales, reference.leaves, reference.leaves[1:])

    assert stops.same_save_points(reference)
    assert not stops.same_save_points(early)


def test_another_growth_interval_is_told_and_the_saved_one_kept(setup: Setup) -> None:
    """The checkpoint's settings win, one line says so, and the bits are the same."""
    reference = record(setup, SCALED)

    assert stops.other_growth_interval(setup, SCALED, reference) == {
        "told": ["scaler/growth_interval: 3 as saved, not 1 as this run was started with"],
        "differing": [],
    }
    assert stops.other_growth_interval(setup, "fp32", record(setup, "fp32")) is None


def test_across_precision_every_pair_goes_by_the_rule(setup: Setup) -> None:
    """All parts come over bit for bit; a scaler is ignored, fresh or none, and this is told."""
    for mode in RUNNABLE:
        record(setup, mode)
    found = {(pair["from"], pair["to"]): pair for pair in across(setup, RUNNABLE)}

    assert list(found) == list(itertools.permutations(RUNNABLE, 2))
    for (saved, mode), pair in found.items():
        told = f"mode: saved in {saved}, goes on in {mode}"
        rule = {SCALED: ("ignored", "; the saved scaler is ignored")}.get(saved, ("none", ""))
        rule = {SCALED: ("fresh", "; its scaler starts fresh")}.get(mode, rule)
        assert (pair["scaler"], pair["told"]) == (rule[0], [told + rule[1]])
        assert pair["differing"] == []
        assert pair["next_loss_finite"] is True


@pytest.mark.parametrize("saved", ["fp32", "amp-bf16"])
def test_a_fresh_scaler_is_as_in_a_run_that_begins(setup: Setup, saved: str) -> None:
    """Its tracker is 0 and its scale the first one, though the step is not."""
    record(setup, saved)
    run, _ = setup.loaded(SCALED, setup.checkpoint(saved, STOP))

    assert run.step == STOP
    assert scaler_numbers(run) == scaler_numbers(setup.run(SCALED))
    assert (scaler_numbers(run)["growth_tracker"], run.scaler.get_scale()) == (0, SCALER["init_scale"])


class Deadly:
    """Progress that kills its process when it is told the moment: an even one before a step, an odd one behind it."""

    def __init__(self, moment: int) -> None:
        self.moment = moment

    @property
    def value(self) -> int:
        """Nobody has come so far and reads it."""
        return -1

    @value.setter
    def value(self, value: int) -> None:
        if value == self.moment:
            os.kill(os.getpid(), signal.SIGKILL)


def killed_at(setup: Setup, mode: str, moment: int) -> None:
    """Have a process train until it dies."""
    with pytest.raises(KilledError, match="SIGKILL"):
        in_child(lambda _: kills._life(setup, mode, Deadly(moment)), "to be killed")


@pytest.mark.parametrize(("moment", "resumed_from"), [(0, 0), (1, 0), (2, 1), (9, 4), (20, 10), (31, 15)])
@pytest.mark.parametrize("mode", ["fp32", SCALED])
def test_a_killed_run_goes_on_to_the_same_bits(setup: Setup, mode: str, moment: int, resumed_from: int) -> None:
    """From its last whole checkpoint, or from the start where none was written yet."""
    end = record(setup, mode).leaves[-1]
    killed_at(setup, mode, moment)
    begun_at, leaves = in_child(partial(kills._life, setup, mode), "goes on")

    assert begun_at == resumed_from
    assert leaves == end


def test_a_run_killed_again_and_again_ends_with_the_same_bits(setup: Setup) -> None:
    """However often it dies."""
    end = record(setup, SCALED).leaves[-1]
    for moment in (7, 8, 9, 22):
        killed_at(setup, SCALED, moment)

    assert in_child(partial(kills._life, setup, SCALED), "goes on") == (11, end)


def half_written(save: Callable[..., None], content: Any, file: io.BufferedWriter) -> None:
    """Die with half a checkpoint on the disk."""
    whole = io.BytesIO()
    save(content, whole)
    file.write(whole.getvalue()[: whole.tell() // 2])
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def dead_before(*_: Any) -> None:
    """Die instead of doing it."""
    os.kill(os.getpid(), signal.SIGKILL)


def dead_behind(function: Callable[..., None], *arguments: Any) -> None:
    """Die when it is done."""
    function(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("where", "name", "death", "resumed_from"),
    [
        (torch, "save", half_written, 5),
        (os, "fsync", dead_before, 5),
        (Path, "replace", dead_before, 5),
        (Path, "replace", dead_behind, 6),
    ],
)
def test_a_run_killed_while_it_writes_has_a_whole_checkpoint(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, death: Any, resumed_from: int
) -> None:
    """At half the file, before it is on the disk, before and behind the rename: never a half one under its name."""
    end = record(setup, SCALED).leaves[-1]
    function, calls = getattr(where, name), itertools.count(1)

    def sixth(*arguments: Any) -> Any:
        return death(function, *arguments) if next(calls) == 6 else function(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(where, name, sixth)
        with pytest.raises(KilledError):
            in_child(partial(kills._life, setup, SCALED), "to be killed")
    begun_at, leaves = in_child(partial(kills._life, setup, SCALED), "goes on")

    assert begun_at == resumed_from
    assert leaves == end
    assert [file.name for file in setup.folder.glob(".*")] == []


def test_runs_killed_from_outside_survive(setup: Setup) -> None:
    """The drill's own way: at random moments, the modes in turn."""
    ends = {mode: record(setup, mode).leaves[-1] for mode in RUNNABLE}
    found = kills.survive(setup, ends, 6)

    assert found["seed"] == setup.params.seed
    assert [kill["mode"] for kill in found["kills"]] == RUNNABLE * 2
    assert [kill["differing"] for kill in found["kills"]] == [[]] * 6
    assert all(kill["step"] <= kill["resumed_from"] <= STEPS for kill in found["kills"])


def test_a_run_that_survives_with_other_bits_is_noticed(setup: Setup, tmp_path: Path) -> None:
    """Against the end of a run from another seed, leaves of every part differ."""
    params = setup.params.model_copy(update={"seed": 1})
    other = record(prepared(Setup(params, MACHINE, tmp_path / "other")), SCALED)
    [kill] = kills.survive(setup, {SCALED: other.leaves[-1]}, 1)["kills"]

    assert {path.split("/")[0] for path in kill["differing"]} == {"modules", "optimizers", "schedulers", "rng"}


def test_what_a_fresh_run_has_as_well_cannot_matter(tiny_params: Params, tmp_path: Path) -> None:
    """An optimizer without state, at a learning rate that has not changed yet: its loss is none."""
    asked = {"optimizer": {"name": "SGD"}, "scheduler": {"name": "StepLR", "step_size": STEPS + 1}}
    given = tiny_params.model_copy(update={"train": tiny_params.train.model_copy(update=asked)})
    setup = prepared(Setup(given, MACHINE, tmp_path))
    found = {each["part"]: each for each in controls(setup, "fp32", record(setup, "fp32"), bit_exact=True)}

    assert (found["optimizers"]["matters"], found["optimizers"]["caught"]) == (False, False)
    assert found["optimizers"]["why_not"] == "at no stop other than in a fresh run"
    assert found["schedulers"]["caught"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"optimizer": {"name": "Muon"}}, "train.optimizer, train.scheduler: the drill's .* Muon .* only supports 2D"),
        ({"optimizer": {"name": "SparseAdam"}}, "the drill's network.*SparseAdam does not support dense gradients"),
        (
            {"scheduler": {"name": "OneCycleLR", "max_lr": 1, "total_steps": 15}},
            "its 16 steps: .*Tried to step 16 times",
        ),
    ],
)
def test_what_cannot_train_the_drills_network_is_refused(
    asked: dict[str, Any], says: str, tiny_params: Params, tmp_path: Path
) -> None:
    """In one line, with the keys and the way out."""
    given = tiny_params.model_copy(update={"train": tiny_params.train.model_copy(update=asked)})
    with pytest.raises(ValueError, match=says) as caught:
        try_out(Setup(given, MACHINE, tmp_path), "fp32")

    assert "\n" not in str(caught.value)


def test_a_run_that_only_skips_is_stopped(setup: Setup) -> None:
    """By itself, with its weights untouched and a message that says where to look."""
    found = stops.runaway(setup, SCALED)

    assert found is not None
    assert (found["stopped_at"], found["differing"]) == (1 + SKIPS_IN_A_ROW, [])
    told = "stopped at step 51: the scaler skipped 50 steps in a row, down to a scale of 9.09e-13; "
    assert found["told"].startswith(told)
    assert stops.runaway(setup, "fp32") is None


@pytest.mark.parametrize("zero_grad", ["set_to_none", "zeros"])
@pytest.mark.parametrize(("optimizer", "keywords"), [("SGD", {}), *BOTH_WAYS, ("AdamW", {"fused": True})], ids=str)
def test_what_skips_leave_alone_is_what_their_gradients_reach(
    tiny_params: Params, tmp_path: Path, optimizer: str, keywords: dict[str, Any], zero_grad: str
) -> None:
    """Where zeros are kept as gradients, the optimizer of a module that a step does not use does step, rightly."""
    given = tiny_params.model_copy(update={"train": tiny_params.train.model_copy(update={"zero_grad": zero_grad})})
    sizes = SIZES | {"optimizer": optimizer, "keywords": keywords}
    found = stops.runaway(prepared(Setup(given, MACHINE, tmp_path, sizes)), SCALED)

    assert found is not None
    assert (found["stopped_at"], found["differing"]) == (1 + SKIPS_IN_A_ROW, [])


def test_a_skip_that_changes_weights_is_noticed(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be if an optimizer stepped whatever the scaler found."""

    def steps_all_the_same(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        scaler.unscale_(optimizer)
        optimizer.step()

    monkeypatch.setattr(torch.amp.GradScaler, "step", steps_all_the_same)
    found = stops.runaway(setup, SCALED)

    assert found is not None
    assert "parameters/0.weight" in found["differing"]


def test_a_run_that_sometimes_steps_is_not_stopped(setup: Setup) -> None:
    """One fine step in 49 is enough, and its weights stay finite."""
    run = setup.run(SCALED, overflow_at=(step for step in range(2 * SKIPS_IN_A_ROW) if step % 49))
    scales = train(run, setup.batches(), 2 * SKIPS_IN_A_ROW).scales.tolist()

    assert len(skipped_steps(scales)) == 2 * SKIPS_IN_A_ROW - 3
    assert all(parameter.isfinite().all() for parameter in run.modules["net"].parameters())


def test_a_run_that_begins_to_skip_midway_is_stopped_in_time(setup: Setup) -> None:
    """Before its scale is so small that a finite step would spoil the weights."""
    run = setup.run(SCALED, overflow_at=range(30, stops.ENDLESS))
    with pytest.raises(RunawayError, match="stopped at step 100"):
        train(run, setup.batches(), stops.ENDLESS)

    assert run.scaler.get_scale() > 2.0**-127


def hopeless(batch_size: int) -> Workload:
    """A network whose loss is always infinite."""
    return Workload(
        modules=lambda: {"net": nn.Linear(1, 1)},
        batch=lambda _: {"x": torch.ones(batch_size, 1)},
        losses=lambda modules, batch: [modules["net"](batch["x"]).sum().float() * float("inf")],
        optimizers=lambda modules, lr: {"sgd": torch.optim.SGD(modules["net"].parameters(), lr=lr)},
    )


def test_a_trial_that_only_overflows_is_a_result(
    tiny_params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not trained, and why; no crash, whether there is a scaler or not."""
    monkeypatch.chdir(tmp_path)
    train_section = tiny_params.train.model_copy(update={"epochs": 20})
    given = tiny_params.model_copy(
        update={"workload": "tests.test_drill:hopeless", "sizes": {"batch_size": 2}, "train": train_section}
    )
    data.make(data.PATH, hopeless(2), seed=0, num_batches=4, batch_size=2)
    trials = {mode: run_trial(given, MACHINE, mode, 0, {"available": True, "emulated": False}) for mode in RUNNABLE}

    assert not any(trial.trained for trial in trials.values())
    assert trials[SCALED].why.startswith("stopped at step 50: the scaler skipped 50 steps in a row")
    assert trials["fp32"].why == trials["amp-bf16"].why
    assert trials["fp32"].why.endswith("at step 0 of 80")


def test_the_whole_drill(tiny_params: Params, tmp_path: Path) -> None:
    """Three kills and all else, in processes of their own: results for every file, and JSON can hold them."""
    params = tiny_params.model_copy(update={"drill": tiny_params.drill.model_copy(update={"kills": 3})})
    modes = {mode: {"available": mode in RUNNABLE} for mode in MODES}
    results = run_drill(params, MACHINE, modes, tmp_path)

    assert json.loads(json.dumps(results, allow_nan=False)) == results
    assert set(results) == {*RUNNABLE, "across", "kills"}
    assert len(results["kills"]["kills"]) == 3
    assert len(results["across"]) == 6
    for mode in RUNNABLE:
        assert results[mode]["mode"] == mode
        assert all(stop["bit_exact"] for stop in results[mode]["stops"])
        assert [stop["differing"] for stop in results[mode]["in_new_processes"]] == [[], [], []]
        assert all(control["caught"] == control["matters"] for control in results[mode]["controls"])


def test_a_checkpoint_that_a_kill_broke_is_a_result(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where saving is not atomic, what is left is refused, and the drill says so instead of ending."""

    def overwritten(run: Run, path: Path) -> None:
        path.write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    reference = record(setup, SCALED)
    monkeypatch.setattr(checkpoint, "save", overwritten)
    [kill] = kills.survive(setup, {SCALED: reference.leaves[-1]}, 1)["kills"]

    assert kill["resumed_from"] is None
    assert "not a whole checkpoint of ours" in kill["differing"][0]


def test_the_first_scale_matters_only_where_it_must(setup: Setup) -> None:
    """Powers of two from 1 to 65536 end with the same weights, unless a step was skipped or gradients underflowed."""
    tried = {each["first_scale"]: each for each in first_scales(setup, SCALED)}

    assert list(tried) == [1.0, 16.0, 256.0, 4096.0, 65536.0]
    assert [tried[256.0]["differing"], tried[4096.0]["differing"]] == [[], []]
    assert all(each["differing"] for each in tried.values() if each["skipped_steps"])
    assert first_scales(setup, "fp32") == []
