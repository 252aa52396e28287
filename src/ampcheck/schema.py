"""What params.yaml may hold, as frozen models. Loads no torch."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ampcheck.fields import Count, Modes, Natural, Optimizer, Positive, Repeats, Scheduler, Sizes, Steps


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
    optimizer: Optimizer | None
    scheduler: Scheduler | None
    clip_norm: Positive | None
    accumulate: Count
    gradient_penalty: Positive | None
    compile: bool
    zero_grad: Literal["set_to_none", "zeros"]
    emulated: bool
    modes: Modes
    repeats: Repeats

    def takes(self, entry: Mapping[str, Any]) -> bool:
        """Whether a mode is trained, by its entry in modes.json: an emulated one only if that is asked for."""
        return bool(entry["available"] and (self.emulated or not entry["emulated"]))

    @model_validator(mode="after")
    def _no_penalty_through_the_compiler(self) -> Self:
        if self.compile and self.gradient_penalty is not None:
            raise ValueError("compile and gradient_penalty exclude each other: torch.compile has no double backward")
        return self


class Resume(Section):
    """The check of resume: N steps without a stop against a stop after K."""

    steps: Count
    stop_after: Count
    batch_size: Count
    overflow_at: Steps
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
    trials_only: bool
    workload: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
    sizes: Sizes
    data: Data
    train: Train
    resume: Resume
    drill: Drill
    report: Report

    @property
    def examined(self) -> list[str]:
        """The modes that are looked at beyond their trials."""
        return [] if self.trials_only else list(self.train.modes)

    @property
    def steps(self) -> int:
        """Optimizer steps of a trial: the last one of an epoch takes the batches that are left."""
        return self.train.epochs * math.ceil(self.data.num_batches / self.train.accumulate)

    @model_validator(mode="after")
    def _rows_for_the_resume(self) -> Self:
        if self.resume.batch_size > self.sizes["batch_size"]:
            have = self.sizes["batch_size"]
            raise ValueError(f"resume.batch_size: got {self.resume.batch_size}; at most sizes.batch_size, {have}")
        return self
