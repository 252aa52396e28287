"""The code itself is broken, one fault at a time, and the drill must say so: what can't fail proves nothing."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from ampcheck import checkpoint, fit, generators, runaway, schedulers, state, stops, training
from ampcheck.across import across
from ampcheck.controls import controls
from ampcheck.identity import differing, leaves
from ampcheck.reference import Setup, record
from ampcheck.schema import Params
from ampcheck.training import train
from tests.test_scaler import test_a_scheduler_waits_for_a_real_step as scheduler_waits

SCALED = "amp-fp16"
Edits = dict[str, str]  # what stands in the source, once -> what stands there instead

PUT = "each.load_state_dict(state[name])"
PUT_SCALER = "run.scaler.load_state_dict(state)"
SCHEDULERS = "_dicts_of(lambda run: run.schedulers)"
FORGOTTEN = "Part(lambda run: {}, lambda run, state: None)"
NO_MOMENTA = "{x: {**y, 'state': {}} for x, y in state[name].items()} if name == 'optimizers' else state[name]"
BUFFERS = "dict(getattr(each, 'named_buffers', dict)())"
NO_BUFFERS = "{key: leaf for key, leaf in each.state_dict().items() if 'num_' not in key and 'running_' not in key}"
NOT_STRICT = "each.load_state_dict(state[name], **{'strict': False} if isinstance(each, torch.nn.Module) else {})"
COMPARED, UNCOMPARED = "if wrong := misfits(", "if wrong := [] and misfits("
IN_STATE = {
    "the scaler is not restored": {PUT_SCALER: "pass"},
    "the growth tracker is not restored": {PUT_SCALER: 'run.scaler.load_state_dict(state | {"_growth_tracker": 0})'},
    "the scaler keeps its own growth interval": {
        PUT_SCALER: 'run.scaler.load_state_dict(state | {"growth_interval": run.scaler.get_growth_interval()})'
    },
    "a scaler that was not saved is restored": {"if state and run.scaler": "if run.scaler"},
    "generators are neither saved nor restored": {'"rng": Part(': f'"rng": {FORGOTTEN} or Part('},
    "the optimizer is made anew": {"part.put(run, state[name])": f"part.put(run, {NO_MOMENTA})"},
    "buffers are not restored": {PUT: f"each.load_state_dict(state[name] | {BUFFERS})"},
    "buffers are neither saved nor restored": {"each.state_dict() for": f"{NO_BUFFERS} for", PUT: NOT_STRICT},
    "the scheduler is not restored": {SCHEDULERS: f"Part({SCHEDULERS}.get, lambda run, state: None)"},
    "the scheduler is neither saved nor restored": {SCHEDULERS: FORGOTTEN},
    "the step is restored one too many": {"run.step = step": "run.step = step + 1"},
    "the step is restored one too few": {"run.step = step": "run.step = step - 1"},
    "the step is saved one too many": {"Part(lambda run: run.step,": "Part(lambda run: run.step + 1,"},
}
PUT_TORCH = 'torch.set_rng_state(state["torch"])'
PUT_NUMPY = "np.random.set_state((name, keys.numpy().astype(np.uint32), *numbers))"
PUT_PYTHON = "random.setstate((version, tuple(words.tolist()), gauss))"
IN_GENERATORS = {
    "torch's generator is not restored": {PUT_TORCH: "pass"},
    "torch's generator is seeded": {PUT_TORCH: "torch.manual_seed(0)"},
    "numpy's generator is not restored": {PUT_NUMPY: "pass"},
    "numpy's generator loses its place": {PUT_NUMPY: PUT_NUMPY.replace("*numbers", "624, *numbers[1:]")},
    "numpy's generator loses the draw it kept": {PUT_NUMPY: PUT_NUMPY.replace("*numbers", "numbers[0]")},
    "python's generator is not restored": {PUT_PYTHON: "pass"},
    "python's generator loses the draw it kept": {PUT_PYTHON: PUT_PYTHON.replace("gauss", "None")},
}
UPDATE = "    run.scaler.update()\n"
CLEAR = 'optimizer.zero_grad(set_to_none=run.options.zero_grad == "set_to_none")'
NEW_SCALER = "torch.amp.GradScaler('cpu', 1024.0, 1.7, 0.5, 3, run.scaler.is_enabled())"
IN_TRAINING = {
    "it is saved before update()": {UPDATE: "", "        lap()\n": f"        lap()\n    {UPDATE}"},
    "the scaler is made anew at each call": {
        "    steps, windows =": f"    run.scaler = {NEW_SCALER}\n    steps, windows ="
    },
    "the batch is not a function of the step": {"run.step % len(windows)": "(taken - 1) % len(windows)"},
    "gradients are kept after a skip": {CLEAR: f"(trained_on[0].isfinite() and {CLEAR})"},
}
WRITE, READ = "torch.save(content, file)", 'torch.load(opened, map_location="cpu", weights_only=True, mmap=True)'
ROUNDED = "torch.utils._pytree.tree_map_only(torch.FloatTensor, lambda leaf: leaf.half().float(), parts)"
IN_CHECKPOINT = {
    "live tensors are kept instead of bytes": {
        "FORMAT = 2\n": "FORMAT, KEPT = 2, {}\n",
        WRITE: f"{WRITE}; KEPT[path] = content",
        READ: "KEPT[path]",
    },
    "what was read once serves two resumes": {"def read(": "import functools\n\n@functools.cache\ndef read("},
    "what is saved is rounded": {'"state": parts': f'"state": {ROUNDED}'},
}
IN_FIT = {"other settings are not told": {"if path in kept and kept[path] != value": "if False"}}
IN_RUNAWAY = {"a run that only skips goes on": {"if bool((scales.diff() < 0).all())": "if False"}}
IN = [
    (state, IN_STATE),
    (generators, IN_GENERATORS),
    (training, IN_TRAINING),
    (checkpoint, IN_CHECKPOINT),
    (fit, IN_FIT),
    (runaway, IN_RUNAWAY),
]
FAULTS = {fault: (module, edits) for module, faults in IN for fault, edits in faults.items()}
NOTICED_BY = dict.fromkeys(FAULTS, "stops") | {  # all but these show right behind a stop
    "the scaler keeps its own growth interval": "growth interval",
    "other settings are not told": "growth interval",
    "a scaler that was not saved is restored": "across",
    "buffers are neither saved nor restored": "controls",
    "it is saved before update()": "save points",
    "what was read once serves two resumes": "growth interval",
    "a run that only skips goes on": "runaway",
}


@contextmanager
def broken(module: ModuleType, edits: Edits) -> Iterator[None]:
    """Have `module` run its source with `edits`, also where others hold what they imported of it; then as before."""
    source = inspect.getsource(module)
    for found, instead in edits.items():
        assert source.count(found) == 1, f"{found!r} is {source.count(found)} times in {module.__name__}"
        source = source.replace(found, instead)
    whole = dict(vars(module))
    exec(compile(source, str(module.__file__), "exec"), vars(module))
    edited = dict(vars(module))
    hand_round(whole, edited)
    try:
        yield
    finally:
        vars(module).update(whole)
        hand_round(edited, whole)


def hand_round(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Give each of our modules that holds an object of `old`, under whatever name, the one of `new`."""
    instead = {id(each): new[name] for name, each in old.items() if name in new and new[name] is not each}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("ampcheck", "tests"):
            vars(module).update({key: instead[id(each)] for key, each in vars(module).items() if id(each) in instead})


@pytest.fixture
def setup(tiny_params: Params, tmp_path: Path) -> Setup:
    """The drill's default network."""
    made = Setup(tiny_params, {"device": "cpu", "threads": 1}, tmp_path)
    made.make_data()
    return made


def complaints(setup: Setup) -> dict[str, list[Any]]:
    """What each check of the drill has against the code as it is, a refusal among it."""
    reference = record(setup, SCALED)
    record(setup, "fp32")
    checks: dict[str, Callable[[], Any]] = {
        "stops": lambda: [stop for stop in stops.every_stop(setup, SCALED, reference) if not stop["bit_exact"]],
        "save points": lambda: [] if stops.same_save_points(reference) else [reference],
        "controls": lambda: missed(controls(setup, SCALED, reference, bit_exact=True)),
        "growth interval": lambda: unruly(stops.other_growth_interval(setup, SCALED, reference)),
        "runaway": lambda: unruly(stops.runaway(setup, SCALED)),
        "across": lambda: [pair for pair in across(setup, ["fp32", SCALED]) if pair["differing"]],
    }
    return {name: found for name, check in checks.items() if (found := found_or_refused(check))}


def missed(told: list[dict[str, Any]]) -> list[Any]:
    """The parts whose loss nobody noticed, though it matters."""
    return [control for control in told if control["matters"] and not control["caught"]]


def unruly(result: dict[str, Any] | None) -> list[Any]:
    """A result that is not by the rule: nothing differs, and what happened is told."""
    return [result] if result is None or result["differing"] or not result["told"] else []


def found_or_refused(check: Callable[[], list[Any]]) -> list[Any]:
    """What a check finds wrong, or the refusal that it met."""
    try:
        return check()
    except (ValueError, RuntimeError) as error:  # ours, or that of what torch can't load
        return [error]


def test_the_drill_has_nothing_against_the_code_as_it_is(setup: Setup) -> None:
    """Without a fault all is well, so that what is said below is said of the fault."""
    assert complaints(setup) == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_drill_notices(setup: Setup, fault: str) -> None:
    """A fault in what is saved, restored or advanced is seen by the check that is made for it."""
    with broken(*FAULTS[fault]):
        said = complaints(setup)

    assert NOTICED_BY[fault] in said


def test_a_fault_ends_with_its_test() -> None:
    """Whoever holds a copy of the broken function has it in between only."""
    whole = dict(vars(training))
    with broken(training, IN_TRAINING["gradients are kept after a skip"]):
        assert vars(stops)["train"] is training.train is train is not whole["train"]

    assert vars(stops)["train"] is training.train is train is whole["train"]
    assert all(vars(training)[name] is each for name, each in whole.items())


def test_a_scheduler_that_advances_on_a_skip_is_noticed() -> None:
    """Resumed and straight run do it alike, so no drill can tell: the learning rate at the end does."""
    scheduler_waits(fused=True)
    edits = {"if found_inf is None or not found_inf.item():": "if True:"}
    with broken(schedulers, edits), pytest.raises(AssertionError):
        scheduler_waits(fused=True)


def with_a_flipped_bit(setup: Setup) -> Path:
    """Where a checkpoint lies of which one bit of one weight has turned."""
    run, path = setup.run("fp32"), setup.checkpoint("fp32", 0)
    checkpoint.save(run, path)
    content = bytearray(path.read_bytes())
    weight = content.find(run.modules["net"].state_dict()["0.weight"].numpy().tobytes())
    assert weight > 0
    content[weight] ^= 1
    path.write_bytes(content)
    return path


def test_a_checkpoint_whose_crc_nobody_checks_is_noticed(setup: Setup) -> None:
    """A flipped bit is refused; without the check nothing else would see it."""
    path = with_a_flipped_bit(setup)
    with pytest.raises(ValueError, match=r"changed: modules/net/0\.weight"):
        setup.loaded("fp32", path)
    with broken(checkpoint, {"if saved != held:": "if False:"}):
        run, told = setup.loaded("fp32", path)

    assert told == []
    assert differing(leaves(state.get(setup.run("fp32"))), leaves(state.get(run))) == ["modules/net/0.weight"]


def without_a_key(setup: Setup) -> Path:
    """Where a checkpoint lies that knows of one weight neither in its state nor in its checksums."""
    path = setup.checkpoint("fp32", 0)
    checkpoint.save(setup.run("fp32"), path)
    found = torch.load(path, weights_only=True)
    del found["state"]["modules"]["net"]["0.weight"]
    del found["checksums"]["modules/net/0.weight"]
    torch.save(found, path)
    return path


@pytest.mark.parametrize("edits", [{}, {PUT: NOT_STRICT}, {COMPARED: UNCOMPARED}])
def test_a_missing_weight_is_refused_twice(setup: Setup, edits: Edits) -> None:
    """By the comparison with the run's own outline, and by the module itself."""
    path = without_a_key(setup)
    with broken(state, edits), pytest.raises((ValueError, RuntimeError), match=r"0\.weight"):
        setup.loaded("fp32", path)


def test_a_weight_that_both_overlook_is_noticed(setup: Setup) -> None:
    """Without both the load ends well, and the weight is that of another seed."""
    path = without_a_key(setup)
    with broken(state, {PUT: NOT_STRICT, COMPARED: UNCOMPARED}):
        run, told = setup.loaded("fp32", path)

    assert told == []
    assert differing(leaves(state.get(setup.run("fp32"))), leaves(state.get(run))) == ["modules/net/0.weight"]
