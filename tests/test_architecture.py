"""The rules of the design, as facts."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ampcheck import params, workloads
from ampcheck.precision import MODES
from tests.helpers import ROOT

LIBRARY = sorted((ROOT / "src/ampcheck").rglob("*.py"))
STAGES = sorted(path for path in (ROOT / "stages").glob("*.py") if path.stem != "__init__")
NEVER_LOAD_TORCH = [
    "schema",
    "summary",
    "findings",
    "figures",
    "params",
    "precision",
    "files",
    "processes",
    "environment",
    "stats",
    "steady",
    "aa",
    "parity",
    "comparison",
    "drawing",
    "evidence",
    "headline",
    "decision",
    "plausibility",
    "trial_tables",
    "report",
    "doubts",
    "measuring",
    "drill_tables",
    "numerics_tables",
    "sentences",
    "broken",
    "gap",
    "gap_tables",
    "advice",
    "sweep",
    "gate",
    "memory_tables",
]


def imported(path: Path) -> set[Path]:
    """Our own modules that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    found = set()
    for name in names:
        base = ROOT / ("src" if name.startswith("ampcheck") else "") / name.replace(".", "/")
        found |= {file for file in (base.with_suffix(".py"), base / "__init__.py") if file.exists()}
    return found


def used(path: Path) -> set[Path]:
    """All of our modules that a file needs, itself included."""
    seen, todo = {path}, [path]
    while todo:
        new = imported(todo.pop()) - seen
        seen |= new
        todo += new
    return seen


@pytest.mark.parametrize("stage", STAGES, ids=lambda path: path.stem)
def test_a_stage_depends_on_the_modules_it_uses(stage: Path) -> None:
    """dvc.yaml lists, for every stage that isn't always run, just the code that the stage imports."""
    pipeline = params.read(ROOT / "dvc.yaml")["stages"]
    listed = {name for name in pipeline[stage.stem].get("deps", []) if name.endswith(".py")}
    needed = {str(path.relative_to(ROOT)) for path in used(stage)} - {"src/ampcheck/__init__.py"}
    if stage.stem in ("drill", "ceilings", "rehearse"):
        needed.add("src/ampcheck/workloads/stateful.py")  # its own network, by import path as every workload

    assert listed == (set() if pipeline[stage.stem].get("always_changed") else needed)


def test_every_stage_has_a_script_and_every_script_a_stage() -> None:
    """Stage and script bear the same word."""
    assert set(params.read(ROOT / "dvc.yaml")["stages"]) == {path.stem for path in STAGES}


def test_nothing_in_the_library_imports_stages_or_a_particular_workload() -> None:
    """Stages are the outermost layer; workloads are reached by import path only."""
    for path in LIBRARY:
        others = {file.relative_to(ROOT).as_posix() for file in imported(path)}

        assert not {name for name in others if name.startswith("stages/")}, path
        assert not {name for name in others if "/workloads/" in name and "__init__" not in name}, path


def test_training_knows_only_precision_and_workloads() -> None:
    """The loop, and what it is made of, does not know where its run or its batches come from."""
    names = {path.stem for path in used(ROOT / "src/ampcheck/training.py")}

    makes_a_run = {"run", "options", "fields", "refusals", "schedulers", "precision", "__init__"}

    assert names == makes_a_run | {"training", "losses", "runaway"}


def test_only_precision_names_a_mode() -> None:
    """No other module of the library has a branch on a mode."""
    for path in LIBRARY:
        strings = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}

        assert path.stem == "precision" or not strings & (set(MODES) - {"tf32"}), path


@pytest.mark.parametrize("module", NEVER_LOAD_TORCH)
def test_torch_is_not_loaded_for_what_needs_none(module: str) -> None:
    """A stage that needs no torch starts without the second or two that its import takes."""
    code = f"import sys, ampcheck.{module}; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT / "src").returncode == 0


def test_measurements_never_come_back_from_the_run_cache() -> None:
    """Every output but the data is uncached and persistent, which keeps its stage out of DVC's run cache."""
    outs: list[Any] = []
    for stage in params.read(ROOT / "dvc.yaml")["stages"].values():
        outs += stage.get("outs", []) + stage.get("metrics", [])
    flags = [next(iter(out.values())) for out in outs if isinstance(out, dict)]

    assert [out for out in outs if isinstance(out, str)] == ["data/fixed.safetensors"]
    assert all(flag["cache"] is False and flag["persist"] is True for flag in flags)


def test_a_clone_inherits_no_measurement() -> None:
    """Our repository holds no results, no report and no dvc.lock: what a clone reports, it has measured."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    inherited = [name for name in tracked if name.startswith(("results/", "data/", "checkpoints/"))]

    assert inherited == []
    assert "dvc.lock" not in tracked
    assert [name for name in tracked if name.startswith("reports/") and not name.endswith(".md.j2")] == []


def test_the_committed_parameters_are_the_recipes_own(raw: dict[str, Any]) -> None:
    """params.yaml holds the recipe's numbers, and is valid."""
    recipe = {"batch_size": 512, "in_size": 4096, "out_size": 4096, "num_layers": 3}

    assert params.errors(raw) == {}
    assert params.read(ROOT / "sizes.yaml")["recipe"] == {"workload": raw["workload"]} | raw["sizes"]
    assert raw["sizes"] == recipe
    assert (raw["data"]["num_batches"], raw["train"]["epochs"], raw["train"]["lr"]) == (50, 3, 0.001)


def test_every_named_size_is_one_of_its_workload() -> None:
    """An entry of sizes.yaml names a workload and all that it takes; every workload of ours has one."""
    named = params.read(ROOT / "sizes.yaml")
    built = {sizes.pop("workload") for sizes in named.values() if workloads.load(sizes["workload"], _rest(sizes))}
    names = ("mlp", "convnet", "transformer", "gan", "custom_op", "island")
    ours = {f"ampcheck.workloads.{name}:build" for name in names}

    assert built == ours
    assert {"laptop", "recipe", "small_batch", "odd_batch", "odd_width"} <= set(named)


def _rest(sizes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in sizes.items() if key != "workload"}


def test_the_code_stays_small() -> None:
    """No module has more than 150 lines: each has one job."""
    lengths = {path.name: len(path.read_text().splitlines()) for path in [*LIBRARY, *STAGES]}

    assert {name: length for name, length in lengths.items() if length > 150} == {}
