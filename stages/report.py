"""What the evidence says, for people and for programs."""

from pathlib import Path

from ampcheck import params, report
from stages import run


def main() -> None:
    """results/ -> reports/report.md, metrics.json, summary.json, steps.csv, figures/."""
    for sentence in report.write(params.load(), Path("results"), Path("reports")):
        print(sentence)


run(main)
