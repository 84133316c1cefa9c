"""Drift per model and workload class: readings in, the classes that must be off out. Called by the desk.

At most ``MAX_MODELS`` models with four classes each, some 300 bytes a test; readings of further models are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sembase.errors import ConfigurationError
from semblend.contract import PlanShape
from semblend.guard.e_process import EProcess

MAX_MODELS: Final = 64
MAX_NAME_CHARACTERS: Final = 256
LEAST_CEILING_KL: Final = 1e-3  # the engine's own noise: a prediction below it promises nothing


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """``ceiling_kl``: mean KL of answers above which a class is turned off. ``alpha``: probability that any class of
    any model is ever turned off although its mean stays below. Readings above ``cap_kl`` count as ``cap_kl``.
    ``class_ceilings_kl``: lower ceilings of single classes, for those whose sound blends lie far below."""

    ceiling_kl: float = 0.02
    alpha: float = 0.01
    cap_kl: float = 1.0
    class_ceilings_kl: Mapping[PlanShape, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0.0 < self.ceiling_kl < self.cap_kl:
            raise ConfigurationError(f"the guard's ceiling {self.ceiling_kl} lies between 0 and the cap {self.cap_kl}")
        if not 0.0 < self.alpha < 1.0:
            raise ConfigurationError(f"the guard's alpha {self.alpha} lies between 0 and 1")
        for shape, ceiling_kl in self.class_ceilings_kl.items():
            if not LEAST_CEILING_KL <= ceiling_kl <= self.ceiling_kl:
                raise ConfigurationError(
                    f"the guard's ceiling of {shape.value} lies between {LEAST_CEILING_KL:g} and the ceiling of all, "
                    f"{self.ceiling_kl:g}, not {ceiling_kl:g}"
                )

    @property
    def mean(self) -> float:
        return self.ceiling_kl / self.cap_kl

    def ceiling_of(self, shape: PlanShape, predicted_kl: float | None = None) -> float:
        """The lowest of what holds for all, for the class, and for this very plan."""
        ceiling_kl = self.class_ceilings_kl.get(shape, self.ceiling_kl)
        return ceiling_kl if predicted_kl is None else min(ceiling_kl, max(predicted_kl, LEAST_CEILING_KL))


@dataclass(slots=True)
class ClassTest:
    """One test. ``number`` is its place among all tests ever begun and decides its part of alpha."""

    number: int
    process: EProcess
    sum_kl: float = 0.0
    sum_ceiling_kl: float = 0.0
    worst_kl: float = 0.0
    is_off: bool = False

    @property
    def mean_kl(self) -> float | None:
        return self.sum_kl / self.process.count if self.process.count else None

    def alpha(self, limits: GuardLimits) -> float:
        """Shares 1/(i(i+1)) sum to 1, however many tests are begun."""
        return limits.alpha / (self.number * (self.number + 1))


Key = tuple[str, PlanShape]


class Tracker:
    """Tests by model and class. An alarm stays until somebody resets the class, which begins a new test."""

    def __init__(self, limits: GuardLimits, tests: dict[Key, ClassTest] | None = None, begun: int = 0) -> None:
        self.limits = limits
        self.tests = {} if tests is None else tests
        self.begun = begun
        self.refused = 0

    def observe(self, model: str, shape: PlanShape, kl: float, predicted_kl: float | None = None) -> bool:
        """Take in a reading; True if it is the one that turns the class off.

        Where a KL was predicted before, and is lower, it is the reading's ceiling.
        """
        test = self._test((model[:MAX_NAME_CHARACTERS], shape))
        if test is None or test.is_off:
            return False
        ceiling_kl = self.limits.ceiling_of(shape, predicted_kl)
        test.sum_kl += kl
        test.sum_ceiling_kl += ceiling_kl
        test.worst_kl = max(test.worst_kl, kl)
        cap_kl = self.limits.cap_kl
        evidence = test.process.observe(min(kl, cap_kl) / cap_kl, ceiling_kl / cap_kl)
        test.is_off = evidence >= 1.0 / test.alpha(self.limits)
        return test.is_off

    def reset(self, model: str, shape: PlanShape) -> bool:
        """The cause is mended: forget the class's readings. False if there were none."""
        return self.tests.pop((model, shape), None) is not None

    def why(self, key: Key) -> str:
        """A sentence for people: what turned the class off, or how it stands."""
        test = self.tests[key]
        mean = "no reading" if test.mean_kl is None else f"mean KL {test.mean_kl:.4f}"
        ceiling = test.sum_ceiling_kl / test.process.count if test.process.count else self.limits.ceiling_of(key[1])
        bound = 1.0 / test.alpha(self.limits)
        state = "off" if test.is_off else "on"
        return (
            f"{state}: {mean} over {test.process.count} checks against a ceiling of {ceiling:.3g}, "
            f"evidence {test.process.evidence:.3g} of {bound:.3g}, worst {test.worst_kl:.3f}"
        )

    def _test(self, key: Key) -> ClassTest | None:
        test = self.tests.get(key)
        if test is None:
            if len({model for model, _ in self.tests} | {key[0]}) > MAX_MODELS:
                self.refused += 1
                return None
            self.begun += 1
            test = self.tests[key] = ClassTest(self.begun, EProcess(self.limits.mean))
        return test
