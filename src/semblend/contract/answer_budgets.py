"""``semblend.answer-budgets.v1``: the right answers of one model that reuse lost, by class, length and fraction.

The bench measures and writes it, the gate of an adapter reads it. A class or a length that was not measured is in no
budget.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.values import count, fraction, number, optional, text
from semblend.contract.shape import PlanShape

SCHEMA: Final = "semblend.answer-budgets.v1"
FILE_NAME: Final = "kvmend-answers.json"
"""In the model's folder, where a server finds it without being told."""
MAX_ANSWER_LOSS: Final = 0.02
"""A server's default limit of the expected loss."""
MIN_ANSWERABLE: Final = 50
"""With fewer right answers a class counts as not measured: none lost of 48 is still an expected loss of 2 %."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Of ``answerable`` items, whose cold answer is right, ``lost`` were wrong with ``fraction`` recomputed.

    ``speedup`` is cold over ours, the median of whole answers; None where it was not measured.
    """

    fraction: float
    answerable: int
    lost: int
    speedup: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.fraction <= 1.0:
            raise ConfigurationError("the fraction of a trial must be between 0 and 1")
        if self.answerable < MIN_ANSWERABLE or not 0 <= self.lost <= self.answerable:
            raise ConfigurationError(
                f"a trial needs at least {MIN_ANSWERABLE} right answers, and no more lost than that"
            )

    @property
    def expected_loss(self) -> float:
        """The chance that the next right answer is lost, by the rule of succession: a small sample proves little."""
        return (self.lost + 1) / (self.answerable + 2)

    def keeps(self, max_loss: float) -> bool:
        """Whether few enough are expected to be lost, and no time with them."""
        return self.expected_loss <= max_loss and (self.speedup is None or self.speedup >= 1.0)


@dataclass(frozen=True, slots=True)
class Budget:
    """The trials of one class in prompts above ``over_tokens`` and up to ``up_to_tokens``, by rising fraction.

    ``min_moved_tokens`` is the shortest passage that was measured behind another context; 0: none was.
    """

    shape: PlanShape
    over_tokens: int
    up_to_tokens: int
    min_moved_tokens: int
    trials: tuple[Trial, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.over_tokens < self.up_to_tokens or self.min_moved_tokens < 0 or not self.trials:
            raise ConfigurationError("a budget needs a range of lengths and at least one trial")
        fractions = [trial.fraction for trial in self.trials]
        if sorted(set(fractions)) != fractions:
            raise ConfigurationError("the fractions of a budget must rise")

    def smallest(self, max_loss: float) -> Trial | None:
        """The trial with the smallest fraction that keeps the answers; None if no measured one does."""
        return next((trial for trial in self.trials if trial.keeps(max_loss)), None)


@dataclass(frozen=True, slots=True)
class AnswerBudgets:
    """``weights`` says of which model (``model_folder.weights_mark``), None: not known.

    ``policy`` selected the recomputed tokens in ``engine``.
    """

    model: str
    weights: str | None
    engine: str
    policy: str | None
    budgets: tuple[Budget, ...]

    def min_moved_tokens(self, max_loss: float) -> int:
        """The shortest passage whose answers any budget keeps behind another context; 0: none does."""
        kept = [one.min_moved_tokens for one in self.budgets if one.min_moved_tokens and one.smallest(max_loss)]
        return min(kept, default=0)

    def of(self, shape: PlanShape, tokens: int) -> Budget | None:
        """The budget of the shortest measured length that covers a prompt."""
        fitting = [one for one in self.budgets if one.shape is shape and one.over_tokens < tokens <= one.up_to_tokens]
        return min(fitting, key=lambda one: one.up_to_tokens, default=None)

    def with_others_of(self, earlier: AnswerBudgets, measured: Collection[tuple[PlanShape, int]]) -> AnswerBudgets:
        """These budgets, and those of an earlier measurement for classes and lengths that this one has not
        ``measured``."""
        if (earlier.weights, earlier.engine, earlier.policy) != (self.weights, self.engine, self.policy):
            return self
        kept = tuple(one for one in earlier.budgets if (one.shape, one.up_to_tokens) not in measured)
        return replace(self, budgets=kept + self.budgets)


def encode_budgets(budgets: AnswerBudgets) -> str:
    record = {
        "schema": SCHEMA,
        "model": budgets.model,
        "weights": budgets.weights,
        "engine": budgets.engine,
        "policy": budgets.policy,
        "budgets": [
            {
                "class": one.shape.value,
                "over_tokens": one.over_tokens,
                "up_to_tokens": one.up_to_tokens,
                "min_moved_tokens": one.min_moved_tokens,
                "trials": [asdict(trial) for trial in one.trials],
            }
            for one in budgets.budgets
        ],
    }
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


def decode_budgets(document: str, where: str) -> AnswerBudgets:
    try:
        record = json.loads(document)
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        _only(record, {"schema", "model", "weights", "engine", "policy", "budgets"})
        return AnswerBudgets(
            text.from_json(record["model"]),
            optional(text).from_json(record["weights"]),
            text.from_json(record["engine"]),
            optional(text).from_json(record["policy"]),
            tuple(_budget(one) for one in record["budgets"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError, ConfigurationError) as error:
        raise ConfigurationError(f"answer budgets {where}: {error}") from None


def _budget(record: dict[str, Any]) -> Budget:
    _only(record, {"class", "over_tokens", "up_to_tokens", "min_moved_tokens", "trials"})
    over, up_to, least = (count.from_json(record[key]) for key in ("over_tokens", "up_to_tokens", "min_moved_tokens"))
    return Budget(PlanShape(record["class"]), over, up_to, least, tuple(map(_trial, record["trials"])))


def _trial(record: dict[str, Any]) -> Trial:
    _only(record, {"fraction", "answerable", "lost", "speedup"})
    answerable, lost = (count.from_json(record[key]) for key in ("answerable", "lost"))
    speedup = optional(number()).from_json(record["speedup"])
    return Trial(fraction.from_json(record["fraction"]), answerable, lost, speedup)


def _only(record: dict[str, Any], keys: set[str]) -> None:
    if wrong := sorted(keys.symmetric_difference(record)):
        raise ValueError(f"unknown or missing keys: {', '.join(wrong)}")


def lowest_lost(trials: Sequence[Trial]) -> Trial:
    """The trial that comes nearest to keeping all answers, for a message."""
    return min(trials, key=lambda trial: (trial.expected_loss, trial.fraction))
