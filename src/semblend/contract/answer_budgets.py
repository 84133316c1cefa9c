"""``semblend.answer-budgets.v1``: the answers of one model that reuse lost and gained, by class, length and fraction.

The bench measures and writes it, the gate of an adapter reads it. A class or a length that was not measured is in no
budget.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import field
from msgspec.structs import replace

from sembase.errors import ConfigurationError
from sembase.records import Amount, Count, Record, as_plain, read_json, record_of
from semblend.contract.shape import PlanShape

SCHEMA: Final = "semblend.answer-budgets.v1"
FILE_NAME: Final = "kvmend-answers.json"
"""In the model's folder, where a server finds it without being told."""
MAX_ANSWER_LOSS: Final = 0.02
"""A server's default limit of the likely loss."""
MIN_RIGHT: Final = 50
"""With fewer right cold answers a class counts as not measured."""
LOSS_ERRORS: Final = 0.7  # standard errors: the true loss is below the bound with a chance of three in four


class Trial(Record, frozen=True):
    """Of ``items``, ``right`` were answered right by the engine alone. With ``fraction`` recomputed, ``lost`` became
    wrong and ``gained`` became right.

    A model that answers differently when its passages come in another order both loses and gains. ``lost`` includes
    answers that became stale, whether they were right before or not. ``speedup`` is the engine's time over ours, the
    median of whole answers; None where it was not measured.
    """

    fraction: float
    items: Count
    right: Count
    lost: Count
    gained: Count = 0
    speedup: Amount | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.fraction <= 1.0:
            raise ConfigurationError("the fraction of a trial must be between 0 and 1")
        if not MIN_RIGHT <= self.right <= self.items:
            raise ConfigurationError(f"a trial needs at least {MIN_RIGHT} right answers, and no more than items")
        if not 0 <= self.lost <= self.items or not 0 <= self.gained <= self.items - self.right:
            raise ConfigurationError("a trial cannot lose or gain more answers than there are")

    @property
    def likely_loss(self) -> float:
        """The upper end of the net loss of right answers, as a fraction of all: the true one is larger with a chance of
        one in four. A small sample proves little, and so do many losses that as many gains make up for."""
        error = LOSS_ERRORS * math.sqrt(self.lost + self.gained + 1)
        return min(1.0, (self.lost - self.gained + error) / (self.items + 2))

    def keeps(self, max_loss: float) -> bool:
        """Whether few enough are likely to be lost, and no time with them."""
        return self.likely_loss <= max_loss and (self.speedup is None or self.speedup >= 1.0)


class Budget(Record, frozen=True):
    """The trials of one class in prompts above ``over_tokens`` and up to ``up_to_tokens``, by rising fraction.

    ``min_moved_tokens`` is the shortest passage that was measured after another context; 0: none was.
    """

    shape: PlanShape = field(name="class")
    over_tokens: Count
    up_to_tokens: Count
    min_moved_tokens: Count
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

    def keeps(self, fraction: float, max_loss: float) -> bool:
        """Whether the trial with this fraction, or the next smaller one, keeps the answers."""
        measured = [trial for trial in self.trials if trial.fraction <= fraction]
        return bool(measured) and measured[-1].keeps(max_loss)


class AnswerBudgets(Record, frozen=True, tag=SCHEMA, tag_field="schema"):
    """``weights`` says of which model (``model_folder.weights_mark``), None: not known.

    ``policy`` selected the recomputed tokens in ``engine``.
    """

    model: str
    weights: str | None
    engine: str
    policy: str | None
    budgets: tuple[Budget, ...]

    def min_moved_tokens(self, max_loss: float) -> int:
        """The shortest passage whose answers any budget keeps after another context; 0: none does."""
        kept = [one.min_moved_tokens for one in self.budgets if one.min_moved_tokens and one.smallest(max_loss)]
        return min(kept, default=0)

    def of(self, shape: PlanShape, tokens: int) -> Budget | None:
        """The budget of the shortest measured length that covers a prompt."""
        fitting = [one for one in self.budgets if one.shape is shape and one.over_tokens < tokens <= one.up_to_tokens]
        return min(fitting, key=lambda one: one.up_to_tokens, default=None)

    def with_others_of(self, earlier: AnswerBudgets, measured: Collection[tuple[PlanShape, int]]) -> AnswerBudgets:
        """These budgets, and those of an earlier measurement for classes and lengths that this one has not
        ``measured``."""
        same = ("engine", "policy", "weights", *(("model",) if self.weights is None else ()))
        if any(getattr(earlier, name) != getattr(self, name) for name in same):
            return self
        kept = tuple(one for one in earlier.budgets if (one.shape, one.up_to_tokens) not in measured)
        return replace(self, budgets=kept + self.budgets)


def encode_budgets(budgets: AnswerBudgets) -> str:
    return json.dumps(as_plain(budgets), indent=2, allow_nan=False) + "\n"


def decode_budgets(document: str, where: str) -> AnswerBudgets:
    try:
        record = read_json(document)
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        return record_of(AnswerBudgets, record)
    except (ValueError, ConfigurationError) as error:
        raise ConfigurationError(f"answer budgets {where}: {error}") from None


def lowest_lost(trials: Sequence[Trial]) -> Trial:
    """The trial that comes nearest to keeping all answers, for a message."""
    return min(trials, key=lambda trial: (trial.likely_loss, trial.fraction))


def smallest_of_all(budgets: Sequence[Budget], max_loss: float) -> float | None:
    """The smallest fraction that keeps the answers of each; None if there is none.

    A fraction that was not measured in one of them counts there as the next smaller one.
    """
    fractions = {trial.fraction for one in budgets for trial in one.trials}
    return min((each for each in fractions if all(one.keeps(each, max_loss) for one in budgets)), default=None)
