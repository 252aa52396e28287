"""What the README says works as written."""

import re
from pathlib import Path

import numpy as np
from ruamel.yaml import YAML

from ampcheck import params
from ampcheck.files import read_json
from tests.helpers import ROOT, edit_params, run_in

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the README's blocks of code in `language`, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def run_until(stages: list[str], project: Path, workload: str, sizes: dict[str, int], modes: list[str]) -> None:
    """Run the pipeline on a workload beside params.yaml, up to these stages, which must end well."""
    edit_params(project, lambda raw: raw.update(workload=workload, sizes=sizes))
    edit_params(project, lambda raw: raw["train"].update(repeats=[0], modes=modes))
    run_in(project, "dvc", "config", "--local", "core.no_scm", "true")
    ended = run_in(project, "dvc", "repro", *stages)

    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_ci_runs_the_readmes_own_commands() -> None:
    """The test command that the README gives is the one that CI runs."""
    assert "```\nnox -s tests\n```" in README
    assert "\nnox -s tests\n" in (ROOT / ".ci/run").read_text()


def test_every_file_that_the_readme_names_is_there() -> None:
    """The table of where to change what leads somewhere."""
    named = re.findall(r"`((?:src|reports|docs)/[\w./-]+\.(?:py|j2|md|svg))`", README)
    made = ["reports/report.md", "reports/sweep.md"]

    assert len(named) > 5
    assert [name for name in named if name not in made and not (ROOT / name).exists()] == []


def test_the_network_of_the_readme_runs_as_pasted(project: Path) -> None:
    """Its file beside params.yaml and its keys in it are all that is needed, up to a bit-exact resume."""
    (project / "my_network.py").write_text(blocks("python")[0])
    keys = YAML(typ="safe").load(blocks("yaml")[0])
    tiny = keys["sizes"] | {"batch_size": 8, "channels": 4}

    run_until(["infer", "resume"], project, keys["workload"], tiny, ["fp32", "amp-bf16"])

    assert all(read_json(project / f"results/resume/{mode}.json")["bit_exact"] for mode in ("fp32", "amp-bf16"))
    assert all(read_json(project / f"results/infer/{mode}.json")["batch_seconds"] for mode in ("fp32", "amp-bf16"))
    assert len(blocks("python")[0].splitlines()) <= 25


def test_batches_may_come_from_the_users_files(project: Path) -> None:
    """The README's example reads a file; when the file changes, DVC makes the data anew, since it is a dependency."""
    (project / "my_data.py").write_text(blocks("python")[1])
    images, labels = np.arange(40 * 12, dtype=np.uint8).reshape(40, 3, 4), np.arange(40) % 5
    np.savez(project / "images.npz", images=images, labels=labels)
    pipeline = project / "dvc.yaml"
    of_data = "    - results/workload.json\n    - src/ampcheck/data.py\n"
    pipeline.write_text(pipeline.read_text().replace(of_data, f"    - images.npz\n{of_data}", 1))
    run_until(["rehearse"], project, "my_data:build", {"batch_size": 8, "num_classes": 5}, ["fp32", "amp-bf16"])
    before = (project / "data/fixed.safetensors").read_bytes()
    np.savez(project / "images.npz", images=images[::-1], labels=labels)
    ended = run_in(project, "dvc", "repro", "data")

    assert read_json(project / "results/rehearse/amp-bf16.json")["dtypes"]["Linear"] == "bfloat16"
    assert "Running stage 'data'" in ended.stdout
    assert (project / "data/fixed.safetensors").read_bytes() != before


def test_a_network_may_come_from_a_package(project: Path) -> None:
    """The README's example wraps one of transformers: tied weights and dropout, resumed to the bit."""
    (project / "my_gpt.py").write_text(blocks("python")[2])
    run_until(["resume"], project, "my_gpt:build", {"batch_size": 4, "length": 6, "width": 8}, ["amp-bf16"])

    assert read_json(project / "results/resume/amp-bf16.json")["bit_exact"]
    assert read_json(project / "results/rehearse/amp-bf16.json")["dtypes"]["Conv1D"] == "bfloat16"


def test_the_readmes_sizes_are_those_of_the_file() -> None:
    """`laptop` is a name of sizes.yaml."""
    assert "nox -s repro -- laptop" in README
    assert "laptop" in params.read(ROOT / "sizes.yaml")
