"""Which gates were requested, with which limits, and how to judge them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sembench.gates.table import BY_NAME

_MODIFIERS = frozenset({"allow_missing", "judge_interval", "min_n"})


@dataclass(frozen=True, slots=True)
class GateRequest:
    """``requested``: limits by the gates' names. A limit of 0 is a request.

    ``judge_interval`` compares the unfavourable end of a speedup's 95 % interval with the limit, not the median.
    ``min_n`` is the minimum number of requests behind a gated rate, median or mean.
    """

    requested: Mapping[str, float]
    allow_missing: bool = False
    judge_interval: bool = False
    min_n: int = 1

    @classmethod
    def of(cls, **values: Any) -> GateRequest:
        """Limits and modifiers by name, as the command line has them: None and a false switch are not requested."""
        if unknown := values.keys() - BY_NAME.keys() - _MODIFIERS:
            raise TypeError(f"no such gate: {', '.join(sorted(unknown))}")
        limits = {name: values.get(name) for name in BY_NAME}
        given = {name: limit for name, limit in limits.items() if limit is not None and limit is not False}
        return cls(given, **{name: values[name] for name in _MODIFIERS & values.keys()})

    def limit(self, name: str) -> float | None:
        """As requested, or the one that applies without a request."""
        return self.requested.get(name, BY_NAME[name].always_on)
