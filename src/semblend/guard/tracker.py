"""Drift per model and workload class: readings in, the classes to turn off out. Called by the checker.

At most ``MAX_MODELS`` models with four classes each, about 300 bytes per test; readings of further models are rejected
and counted.
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
MIN_CEILING_KL: Final = 1e-3  # the noise of the engine


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """``ceiling_kl``: mean KL of answers above which a class is turned off. ``alpha``: probability that any class of
    any model is ever turned off although its mean stays below. Readings above ``cap_kl`` count as ``cap_kl``.
    ``class_ceilings_kl``: lower ceilings for classes whose correct blends are far below the common ceiling."""

    ceiling_kl: float = 0.02
    alpha: float = 0.01
    cap_kl: float = 1.0
    class_ceilings_kl: Mapping[PlanShape, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0.0 < self.ceiling_kl < self.cap_kl:
            raise ConfigurationError(
                f"the guard's ceiling must be between 0 and the cap {self.cap_kl}, not {self.ceiling_kl}"
            )
        if not 0.0 < self.alpha < 1.0:
            raise ConfigurationError(f"the guard's alpha must be between 0 and 1, not {self.alpha}")
        for shape, ceiling_kl in self.class_ceilings_kl.items():
            if not MIN_CEILING_KL <= ceiling_kl <= self.ceiling_kl:
                raise ConfigurationError(
                    f"the guard's ceiling of {shape.value} must be between {MIN_CEILING_KL:g} and the common ceiling "
                    f"{self.ceiling_kl:g}, not {ceiling_kl:g}"
                )

    @property
    def mean(self) -> float:
        return self.ceiling_kl / self.cap_kl

    def ceiling_of(self, shape: PlanShape) -> float:
        """The ceiling of the class, or the common one."""
        return self.class_ceilings_kl.get(shape, self.ceiling_kl)


@dataclass(slots=True)
class ClassTest:
    """One test. ``number`` counts all tests ever begun and determines this test's part of alpha."""

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
        """This test's part of alpha: 1/(i(i+1)) for test i. The parts sum to at most 1, however many tests start."""
        return limits.alpha / (self.number * (self.number + 1))


Key = tuple[str, PlanShape]


class Tracker:
    """Tests by model and class. A class stays off until an operator resets it, which begins a new test."""

    def __init__(self, limits: GuardLimits, tests: dict[Key, ClassTest] | None = None, begun: int = 0) -> None:
        self.limits = limits
        self.tests = {} if tests is None else tests
        self.begun = begun
        self.refused = 0

    def observe(self, model: str, shape: PlanShape, kl: float) -> bool:
        """Add a reading; True if it turns the class off."""
        test = self._test((model[:MAX_NAME_CHARACTERS], shape))
        if test is None or test.is_off:
            return False
        ceiling_kl = self.limits.ceiling_of(shape)
        test.sum_kl += kl
        test.sum_ceiling_kl += ceiling_kl
        test.worst_kl = max(test.worst_kl, kl)
        cap_kl = self.limits.cap_kl
        evidence = test.process.observe(min(kl, cap_kl) / cap_kl, ceiling_kl / cap_kl)
        test.is_off = evidence >= 1.0 / test.alpha(self.limits)
        return test.is_off

    def reset(self, model: str, shape: PlanShape) -> bool:
        """Forget the readings of a class once the cause is fixed. False if there were none."""
        return self.tests.pop((model, shape), None) is not None

    def why(self, key: Key) -> str:
        """The state of a class and its figures, in one line of text."""
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
