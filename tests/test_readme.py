"""What the README says works as written."""

import json
import re
from pathlib import Path

from ruamel.yaml import YAML

from ampcheck import params
from tests.helpers import ROOT, edit_params, run_in

README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    """Return the README's first block of code in `language`."""
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_ci_runs_the_readmes_own_commands() -> None:
    """The test command that the README gives is the one that CI runs."""
    assert "```\nnox -s tests\n```" in README
    assert "\nnox -s tests\n" in (ROOT / ".ci/run").read_text()


def test_every_file_that_the_readme_names_is_there() -> None:
    """The table of where to change what leads somewhere."""
    named = re.findall(r"`((?:src|reports|docs)/[\w./-]+\.(?:py|j2|md|svg))`", README)
    made = ["reports/report.md"]

    assert len(named) > 5
    assert [name for name in named if name not in made and not (ROOT / name).exists()] == []


def test_the_network_of_the_readme_runs_as_pasted(project: Path) -> None:
    """Its file beside params.yaml and its keys in it are all that is needed, up to a bit-exact resume."""
    (project / "my_network.py").write_text(block("python"))
    edit_params(project, lambda raw: raw.update(YAML(typ="safe").load(block("yaml"))))
    edit_params(project, lambda raw: raw["train"].update(repeats=[0], modes=["fp32", "amp-bf16"]))
    edit_params(project, lambda raw: raw["sizes"].update(batch_size=8, channels=4))
    run_in(project, "dvc", "config", "--local", "core.no_scm", "true")
    ended = run_in(project, "dvc", "repro")
    metrics = json.loads((project / "reports/metrics.json").read_text())

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {mode: row["resume_bit_exact"] for mode, row in metrics.items()} == {"fp32": True, "amp-bf16": True}


def test_the_readmes_sizes_are_those_of_the_file() -> None:
    """`laptop` is a name of sizes.yaml."""
    assert "nox -s repro -- laptop" in README
    assert "laptop" in params.read(ROOT / "sizes.yaml")
