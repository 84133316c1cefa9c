"""The oracle of `return_time`: the same definitions over dictionaries, every request remembered."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from semantic_kv.policy.interface import Setting, View
from semantic_kv.policy.structure.ages import AGE_STARTS, AGES
from semantic_kv.policy.structure.return_model import (
    SUPERSEDED,
    SUPERSEDED_MOST,
    Shape,
    coarse_row,
    enter_coarse_row,
    fine_row,
    make_return_model,
)
from semantic_kv.policy.structure.sampled import SampledReference

_STARTS = [int(start) for start in AGE_STARTS]
_WIDTHS = [float(after - start) for start, after in pairwise([*_STARTS, 2 * _STARTS[-1]])]
Table = defaultdict[int, list[float]]


def _table(width: int) -> Table:
    return defaultdict(lambda: [0.0] * width)


class Reference(SampledReference):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view, int(setting.options["sample"]))
        self._rows = make_return_model()  # only for the numbers of the rows and what is above them
        self._waited, self._returned, self._rate = _table(AGES), _table(AGES), _table(AGES)
        self._density = _table(AGES + 1)
        self._row: list[int] = []
        self._known = 0
        self._deepest, self._gap, self._branched = -1, 0, 0
        self._last: dict[int, int] = {}
        self._uses: dict[int, int] = {}
        self._branches: dict[int, int] = {}
        self._kind: dict[int, int] = {}
        self._through: dict[int, tuple[int, list[int]]] = {}  # the last request through a node: session and blocks
        self._served: list[list[int]] = []

    def _chain(self, row: int) -> list[int]:
        chain = [row]
        while chain[-1] > 0:
            chain.append(int(self._rows.above[chain[-1]]))
        return chain

    def _learns(self, node: int) -> bool:
        return node % int(self.setting.options["learn_every"]) == 0

    def _touch(self, node: int) -> None:
        now = self.view.request
        if self._last.get(node) == now:
            return
        if node in self._last:
            self._known += 1
            self._deepest, self._gap = node, now - self._last[node]
            self._branched = self._branches.get(node, 0)
            if self._learns(node):
                for row in self._chain(self._kind[node]):
                    self._returned[row][self._age(self._gap)] += 1.0
            self._uses[node] = min(255, self._uses[node] + 1)
        else:
            self._uses[node] = 0
        self._last[node] = now
        self._row.append(node)

    def _age(self, waited: int) -> int:
        return max((age for age, start in enumerate(_STARTS) if start <= waited), default=0)

    def on_hit(self, node: int) -> None:
        super().on_hit(node)
        self._touch(node)

    def on_miss(self, node: int) -> None:
        self._touch(node)

    def after_request(self) -> None:
        now, length = self.view.request, len(self._row)
        if self.setting.is_tree and self._known:
            self._supersede()
        shape = Shape(
            self._known,
            length - self._known,
            self._branched,
            self._gap,
            self.view.finish + 1,
        )
        for at, node in enumerate(self._row):
            is_last = int(at == length - 1)
            self._through[node] = (self.view.session, self._row)
            self._kind[node] = fine_row(self._rows, int(self.view.label[node]), self._uses[node], is_last, shape)
        if 0 < self._known < length:
            self._branches[self._deepest] = min(255, self._branches.get(self._deepest, 0) + 1)
        self._served.append([node for node in self._row if self._learns(node)])
        self._row, self._known, self._gap, self._branched = [], 0, 0, 0
        for age, start in enumerate(_STARTS):
            if start <= now + 1:
                self._wait(age, now + 1 - start)
        if now % int(self.setting.options["refresh"]) == 0:
            self._refresh(0.5 ** (self.setting.options["refresh"] / self.setting.options["half_life_requests"]))
        elif now < 2048 and now % 16 == 0:
            self._refresh(1.0)

    def _supersede(self) -> None:
        session, earlier = self._through[self._deepest]
        behind = earlier[earlier.index(self._deepest) + 1 :]
        if session == self.view.session >= 0:
            ending = SUPERSEDED if len(behind) <= self._known else SUPERSEDED_MOST
            for node in behind:
                self._kind[node] = enter_coarse_row(self._rows, ending, int(self.view.label[node]), self._uses[node])

    def _wait(self, age: int, then: int) -> None:
        for node in self._served[then]:
            if self._last[node] == then:
                for row in self._chain(self._kind[node]):
                    self._waited[row][age] += 1.0

    def _refresh(self, fade: float) -> None:
        strength = self.setting.options["strength"]
        for row in [0, *(int(row) for row in self._rows.is_used.nonzero()[0])]:
            weight = strength if row else 5.0
            for age in range(AGES):
                prior = self._rate[int(self._rows.above[row])][age] if row else 0.0
                returned, waited = self._returned[row][age], self._waited[row][age]
                self._rate[row][age] = min(0.999, (returned + weight * prior) / (waited + weight))
                self._returned[row][age] *= fade
                self._waited[row][age] *= fade
            self._density[row] = [self._best(self._rate[row], age) for age in range(AGES)]
            self._density[row].append(self._density[row][-1])

    def _best(self, rate: list[float], age: int) -> float:
        waiting, returns, spent, best = 1.0, 0.0, 0.0, 0.0
        for until in range(age, AGES):
            returns += waiting * rate[until]
            spent += waiting * _WIDTHS[until] * (1.0 - 0.5 * rate[until])
            waiting *= 1.0 - rate[until]
            best = max(best, returns / spent)
        return best

    def score(self, node: int) -> float:
        if self.view.request < self.setting.options["learn_first"]:
            return 0.0
        waited = self.view.request - self._last[node]
        age = self._age(waited)
        part = min(1.0, max(0.0, (waited - _STARTS[age]) / _WIDTHS[age]))
        density = self._density[self._kind[node]]
        return (density[age] * (1.0 - part) + density[age + 1] * part) / self.view.size_of(node)

    def worth(self, node: int) -> float:
        if self.view.is_resident(node):
            return self.score(node)
        return self._density[coarse_row(0, int(self.view.label[node]), self._uses[node])][0] / self.view.size_of(node)
