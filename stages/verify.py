"""The last word: one line and exit code 1 for each thing that the evidence says is wrong."""

from pathlib import Path

from ampcheck import evidence, params
from ampcheck.findings import findings
from stages import run


def main() -> None:
    """results/ -> nothing."""
    given = params.load()
    if found := findings(evidence.read(given, Path("results"))):
        raise ValueError("\n".join(f"verify: {finding}" for finding in found))
    print("nothing wrong was found")


run(main)
