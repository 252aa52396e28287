"""A diagnosis in plain sentences, for the terminal and for the report. Loads no torch."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

LARGEST = {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.40e38}
HINTS = {  # by what the operation's name begins with
    "div": "keep the divisor from zero; the gradient of a square root divides by zero at zero",
    "reciprocal": "keep the divisor from zero",
    "rsqrt": "keep its argument from zero",
    "log": "keep its argument from zero, or take log_softmax or logsigmoid",
    "exp": "take logsumexp or softmax, which subtract the greatest first",
    "pow": "the gradient of a root is infinite at zero: add a small number first",
}
DECORATE = "decorate its forward with torch.amp.custom_fwd and its backward with torch.amp.custom_bwd"
LOGITS = "16 bits round them to 0 or 1; take the form of logits, BCEWithLogitsLoss, and leave the sigmoid out"


def sentences(diagnosis: Mapping[str, Any]) -> list[str]:
    """Say what a Diagnosis, as a dict, has found; one sentence if there is nothing to say."""
    mode = diagnosis["mode"]
    if diagnosis["why"]:
        return [f"{mode}: not diagnosed: {diagnosis['why']}."]
    steps = f"{diagnosis['steps']} steps on {diagnosis['rows']} rows"
    [(name, as_it_is), *others] = diagnosis["tried"].items()
    said = [f"{mode}, {steps}, {name}: {as_it_is or 'nothing breaks'}."]
    said += [f"With {other}: {broken or 'nothing breaks'}." for other, broken in others]
    if as_it_is:
        said += [diagnosis["verdict"], *_place(diagnosis["place"], mode), *_cure(diagnosis)]
    return said


def _place(place: Mapping[str, Any], mode: str) -> Iterator[str]:
    if refused := place["refused"]:
        dtypes = " and ".join(dict.fromkeys(refused["dtypes"]))
        where = f"in {refused['module']}, " if refused["module"] else ""
        yield f"torch refuses {refused['operation']} of {dtypes}, {where}{refused['phase']}: {place['error']}."
        yield f"Its C++ stack is in results/diagnose/{mode}.stack.txt."
        if refused["phase"] == "backward" and len(set(refused["dtypes"])) > 1:
            yield f"If it is in an autograd.Function of your own: {DECORATE}."
    if culprit := place["culprit"]:
        yield _birth(culprit)
        yield from _hints(culprit)
    for line in dict.fromkeys(place["probabilities"]):
        yield f"Binary cross entropy is given probabilities in 16 bits ({line}): {LOGITS}."
    if place["gradient"]:
        yield f"The first parameter whose gradient is not finite is {place['gradient']}."


def _birth(culprit: Mapping[str, Any]) -> str:
    where = f"in {culprit['module']} ({culprit['kind']})" if culprit["module"] else "outside of all modules"
    line = f" ({culprit['line']})" if culprit["line"] else ""
    dtype, in_float32 = culprit["dtype"], culprit["in_float32"]
    made = f"{culprit['operation']} makes of numbers up to {culprit['largest']:.3g} one that is not finite"
    ends = f"{dtype} ends at {LARGEST.get(dtype, math.inf):.6g}"
    reached = "nor would it be in float32" if in_float32 is None else f"in float32 the result reaches {in_float32:.3g}"
    return f"It begins {where}, {culprit['phase']}: {made}; {ends}, {reached}{line}."


def _hints(culprit: Mapping[str, Any]) -> Iterator[str]:
    """Of operations with a pole; where float32 would hold the number, there is none."""
    operation = culprit["operation"].lstrip("_")
    if culprit["in_float32"] is None or culprit["phase"] == "backward":
        yield from (f"Of {operation}: {hint}." for start, hint in HINTS.items() if operation.startswith(start))


def _cure(diagnosis: Mapping[str, Any]) -> Iterator[str]:
    if islands := diagnosis["islands"]:
        what = "An island of float32" if len(islands) == 1 else "Islands of float32"
        tried = f"tried for {diagnosis['steps']} steps"
        yield f"{what} around {' and '.join(islands)} cures it, {tried}; the code is below."
    elif not diagnosis["tried"].get("autocast off", "there is none"):
        yield "No module was found that as an island of float32 cures it: switch autocast off for the lines named."
