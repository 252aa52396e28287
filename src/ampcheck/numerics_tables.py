"""The numbers' health, and what was diagnosed, as the report shows them: plain values. Loads no torch."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from ampcheck.evidence import Evidence
from ampcheck.sentences import LOGITS, sentences

SHOWN = 3  # gradients of a mode: those that lose most
LOST = 0.01  # of a gradient's numbers: with fewer that are zero nobody has seen harm


def numerics_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return for each mode that was examined whether its type is safe here, and the figures that say so."""
    return [_row(each, _scales(evidence, mode)) for mode, each in evidence.numerics.items() if not each["why"]]


def diagnosis_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return for each mode that was diagnosed what was found, and the code of its cure."""
    return [
        {"mode": mode, "sentences": sentences(each), "code": Markup(each["code"])}
        for mode, each in evidence.diagnose.items()
        if not each["why"]
    ]


def _row(found: Mapping[str, Any], scale_changes: list[tuple[int, float]]) -> dict[str, Any]:
    gradients = [each | {"name": f"output of {each['name']}"} for each in found["of_outputs"]] + found["of_parameters"]
    lossy = sorted(gradients, key=lambda each: -(each["zero_unscaled"] or 0.0))
    tightest = min((each for each in gradients if each["headroom"]), key=lambda each: each["headroom"], default=None)
    output = max(found["outputs"], key=found["outputs"].__getitem__, default=None)
    return {
        "mode": found["mode"],
        "dtype": found["dtype"],
        "rows": found["rows"],
        "unsafe": unsafe(found),
        "tightest": tightest,
        "output": output,
        "output_largest": found["outputs"].get(output),
        "first_scale": found["first_scale"],
        "scale": scale_story(scale_changes),
        "gradients": [each for each in lossy[:SHOWN] if each["zero_unscaled"]],
    }


def unsafe(found: Mapping[str, Any]) -> list[str]:
    """Say why a mode's 16-bit type is not safe here, a reason each; [] if it is."""
    said = [found["broken"]] if found["broken"] else []
    for each in found["overflows"]:
        where = f" ({each['line']})" if each["line"] else ""
        reached = f"{each['in_float32']:.3g}, more than {found['dtype']} holds"
        said.append(f"{each['operation']} in {each['module'] or 'the losses'}{where} reaches {reached}")
    said += [f"no gradient reaches {name}, but one does in float32" for name in found["without_gradient"]]
    said += [f"binary cross entropy of probabilities in 16 bits ({line}): {LOGITS}" for line in found["probabilities"]]
    lost = [each["zero_unscaled" if each["zero_scaled"] is None else "zero_scaled"] for each in found["of_parameters"]]
    if (worst := max((share for share in lost if share is not None), default=0.0)) > LOST:
        said.append(f"up to {worst * 100:.3g} % of a parameter's gradients become zero")
    return said


def scale_story(changes: list[tuple[int, float]]) -> str:
    """Tell in one line how a loss scale went; empty of no scaler."""
    if not changes:
        return ""
    pairs = list(pairwise(changes))
    skipped = [step - 1 for (_, before), (step, after) in pairs if after < before]
    grown = [step - 1 for (_, before), (step, after) in pairs if after > before]
    went = f"skipped {_counted(skipped)}; grew after {_counted(grown)}"
    return f"began at {changes[0][1]:g}; {went}; ended at {changes[-1][1]:g}"


def _counted(steps: list[int]) -> str:
    shown = ", ".join(str(step) for step in steps[:5]) + ", ..." * (len(steps) > 5)
    return f"{len(steps)} {'step' if len(steps) == 1 else 'steps'}{f' ({shown})' if steps else ''}"


def _scales(evidence: Evidence, mode: str) -> list[tuple[int, float]]:
    """Return those of the first trial that was trained, else those of the few steps in which the mode was examined."""
    trials = evidence.trials.xs(mode)
    of_trials = [list(changes) for changes in trials.loc[trials["trained"], "scale_changes"]]
    return next(iter(of_trials), None) or list(evidence.numerics[mode]["scale_changes"])
