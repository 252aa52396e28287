"""What params.yaml may hold, as frozen models. Loads no torch."""

import difflib
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ampcheck.precision import MODES

RESERVED_BY_DVC = ("size", "nfiles")  # DVC's run cache leaves keys of these names out of its hash


def _whole(value: object) -> object:
    """Turn 1e2, which YAML reads as a float, into the integer it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _distinct(values: list[Any]) -> list[Any]:
    if len(set(values)) < len(values):
        raise ValueError("each entry may appear once only")
    return values


def _mode(name: str) -> str:
    if name not in MODES:
        raise ValueError(f"no such mode; allowed: {', '.join(MODES)}{closest(name, list(MODES))}")
    return name


def _sizes(sizes: dict[str, Any]) -> dict[str, Any]:
    for key in RESERVED_BY_DVC:
        if key in sizes:
            raise ValueError(f"a key named {key!r} is not allowed: DVC's run cache ignores it; choose another name")
    batch_size = sizes.get("batch_size")
    if type(batch_size) is not int or batch_size < 1:
        raise ValueError(f"batch_size must be among them, an integer of at least 1; got {batch_size!r}")
    return sizes


def _named(keywords: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(keywords.get("name"), str):
        raise ValueError(f"needs a name, say {{name: Adam}}, and keywords beside it; got {keywords}")
    return keywords


Named = Annotated[dict[str, Any], AfterValidator(_named)]  # a class of torch's, and keywords
Natural = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A section of params.yaml: no conversions, no unknown keys, frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Data(Section):
    """The fixed data: `num_batches` batches, used in turn."""

    num_batches: Count


class Train(Section):
    """The timed trials; the first of `modes` is the baseline."""

    epochs: Count
    lr: Positive
    optimizer: Named | None
    scheduler: Named | None
    clip_norm: Positive | None
    accumulate: Count
    gradient_penalty: Positive | None
    compile: bool
    zero_grad: Literal["set_to_none", "zeros"]
    emulated: bool
    modes: Annotated[list[Annotated[str, AfterValidator(_mode)]], Field(min_length=1), AfterValidator(_distinct)]
    repeats: Annotated[list[Natural], Field(min_length=1), AfterValidator(_distinct)]


class Resume(Section):
    """The check of resume: N steps without a stop against a stop after K."""

    steps: Count
    stop_after: Count
    batch_size: Count
    overflow_at: Annotated[list[Natural], AfterValidator(_distinct)]
    growth_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)]
    growth_interval: Count

    @model_validator(mode="after")
    def _overflows_on_both_sides(self) -> Self:
        if self.stop_after >= self.steps:
            raise ValueError(f"stop_after must be below steps ({self.steps}); got {self.stop_after}")
        before = any(step < self.stop_after for step in self.overflow_at)
        after = any(self.stop_after <= step < self.steps for step in self.overflow_at)
        if not (before and after) or max(self.overflow_at) >= self.steps:
            raise ValueError(
                f"overflow_at must lie in 0 to {self.steps - 1}, with a step before the stop (below "
                f"{self.stop_after}) and one after it; got {self.overflow_at}"
            )
        if self.tracker_at_stop == 0:
            raise ValueError(
                f"the growth tracker is 0 at the stop, as in a fresh scaler, so that its loss would not show; change "
                f"growth_interval ({self.growth_interval}), stop_after or overflow_at by one"
            )
        return self

    @property
    def tracker_at_stop(self) -> int:
        """Steps taken since the last overflow or growth before the stop."""
        last_overflow = max(step for step in self.overflow_at if step < self.stop_after)
        return (self.stop_after - 1 - last_overflow) % self.growth_interval


class Drill(Section):
    """The resume drill on a small network: how many of its runs are killed."""

    kills: Natural


class Report(Section):
    """How results are judged: `band` is the relative difference that still counts as the same."""

    band: Annotated[float, Field(ge=0, lt=1)]


class Params(Section):
    """All of params.yaml."""

    seed: Annotated[Natural, Field(lt=2**32)]  # numpy's legacy seed takes no more
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda|cuda:\d+)$")]
    deterministic: bool
    workload: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
    sizes: Annotated[dict[str, Annotated[Any, BeforeValidator(_whole)]], AfterValidator(_sizes)]
    data: Data
    train: Train
    resume: Resume
    drill: Drill
    report: Report

    @model_validator(mode="after")
    def _rows_for_the_resume(self) -> Self:
        if self.resume.batch_size > self.sizes["batch_size"]:
            have = self.sizes["batch_size"]
            raise ValueError(f"resume.batch_size: got {self.resume.batch_size}; at most sizes.batch_size, {have}")
        return self


def closest(name: str, allowed: list[str]) -> str:
    """Return " (did you mean NAME?)" where an allowed name is close to `name`, else an empty string."""
    close = difflib.get_close_matches(name, allowed, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
