"""How a mode compares with the baseline, in speed, memory and loss; None is what was not measured. Loads no torch."""

from typing import TYPE_CHECKING, Any, TypeVar

from ampcheck.aa import itself
from ampcheck.parity import largest_and_last, loss_differences
from ampcheck.stats import Ratio, paired_ratio, pairs_to_settle, smallest_effect, verdict

if TYPE_CHECKING:
    import pandas as pd

    from ampcheck.evidence import Evidence

Table = TypeVar("Table", "pd.DataFrame", "pd.Series[float]")
NO_RATIO = Ratio(mean=None, low=None, high=None, pairs=0)


def of_mode(table: Table, mode: str) -> Table:
    """Return the rows of one mode, by repeat, of a table indexed by (mode, repeat)."""
    return table[table.index.get_level_values("mode") == mode].droplevel("mode")


def speed(evidence: "Evidence", mode: str, steady: "pd.Series[float]") -> dict[str, Any]:
    """Return a mode's speed-up and the verdict on it, by the names of Summary; `steady` holds medians by trial."""
    baseline, band = evidence.params.train.modes[0], evidence.params.report.band
    own = of_mode(steady, mode)
    ratio = NO_RATIO if mode == baseline else paired_ratio(of_mode(steady, baseline), own)
    scatter, pairs = (itself(own).aa_scatter, len(own)) if mode == baseline else (ratio.scatter, ratio.pairs)
    said = verdict(ratio, band)
    return {
        "speedup": ratio.mean,
        "speedup_low": ratio.low,
        "speedup_high": ratio.high,
        "pairs": ratio.pairs,
        "verdict": said,
        "smallest_effect": smallest_effect(scatter, pairs, band),
        "pairs_to_settle": pairs_to_settle(ratio, band) if said == "inconclusive" else None,
        "again_low": ratio.again_low,
        "again_high": ratio.again_high,
    }


def memory_ratio(evidence: "Evidence", mode: str) -> float | None:
    """Return the median over the repeats of the mode's net peak by the baseline's; None of the baseline itself."""
    baseline = evidence.params.train.modes[0]
    before, after = (of_mode(evidence.trials, each)["net_peak_bytes"] for each in (baseline, mode))
    ratios = (after / before.where(before > 0)).dropna()
    return None if mode == baseline or ratios.empty else float(ratios.median())


def parity(evidence: "Evidence", mode: str) -> dict[str, Any]:
    """Return the largest and the last difference of a mode's loss to the baseline's, by the names of Summary."""
    differences = loss_differences(evidence.steps, evidence.params.train.modes[0])
    largest, last = largest_and_last(differences, mode, last_step=evidence.params.steps - 1)
    return {"largest_loss_difference": largest, "final_loss_difference": last}
