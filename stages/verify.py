"""The last word: one line and exit code 1 for each thing that the evidence says is wrong."""

from pathlib import Path

from ampcheck import evidence, params
from stages import run


def main() -> None:
    """results/ -> nothing."""
    given = params.load()
    if found := evidence.findings(evidence.read(given, Path("results"))):
        raise ValueError("\n".join(f"verify: {finding}" for finding in found))


run(main)
