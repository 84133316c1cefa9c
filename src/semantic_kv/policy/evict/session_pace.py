"""Ours, for agents: evict the block whose session is expected back last, by its own pace and how its answer ended.

Gaps between the requests of a session are heavy-tailed: the longer one has lasted, the longer its expected rest, which
grows as (age + scale). The scale is the session's usual gap after an answer that ended alike (tool call, end of turn):
a geometric mean that starts at that of all sessions. An end of turn counts `turn_end` times as old, for some sessions
end there. Blocks that a newer prompt of their session left behind leave first. Without session ids it is close to LRU.
Compares a sample of the evictable blocks. 53 bytes per known node and 4 MB for the sessions.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import (
    FINISH,
    IS_TREE,
    REQUEST,
    SESSION,
    Cache,
    EvictionPolicy,
    Setting,
    View,
    size_of,
)
from semantic_kv.policy.structure.sampled import Pool, SampledReference, make_pool, sampled_hooks
from sembase.compiled import kernel_part
from sembase.finish import FINISH_REASONS, STOP

# scale: of the usual gap, what is added to the age. kept: a prompt that keeps less than this share of its predecessor's
# blocks belongs to another branch of the session (a sub-agent), and supersedes nothing.
_DEFAULTS = {"sample": 64.0, "scale": 1.0, "turn_end": 2.0, "kept": 0.05, "newest": 0.3}
ENDINGS: Final = len(FINISH_REASONS) + 1  # finish reason + 1; 0: unknown
TURN_END: Final = STOP + 1
SESSIONS: Final = 1 << 16
SHORTEST_MS: Final = 1.0
_SHARE_OF_ALL: Final = 0.01  # how much the newest gap moves the mean over all sessions, once it has seen enough


@kernel_part
def moved(mean: float, gap_ms: float, share: float) -> float:
    """A mean of logarithms after one more gap."""
    return (1.0 - share) * mean + share * math.log(max(gap_ms, SHORTEST_MS))


@kernel_part
def return_rate(age_ms: float, mean: float, scale: float, factor: float) -> float:
    return 1.0 / (max(age_ms + scale * math.exp(mean), SHORTEST_MS) * factor)


class Reference(SampledReference):
    """The definition over dictionaries; a session's last request is kept whole."""

    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view, int(setting.options["sample"]))
        self._row: list[int] = []
        self._is_new = True  # nothing of the request is known to be absent yet
        self._means, self._gaps = [0.0] * ENDINGS, [0] * ENDINGS
        self._sessions: dict[int, tuple[int, float, int, list[int]]] = {}  # slot: session, time, ending, blocks
        self._paces: dict[int, dict[int, float]] = {}
        self._last: dict[int, int] = {}
        self._used_at: dict[int, float] = {}
        self._owner: dict[int, int] = {}
        self._expected: dict[int, tuple[float, float] | None] = {}  # mean and factor; None: superseded

    def _touch(self, node: int) -> None:
        if self._last.get(node) != self.view.request:
            self._last[node] = self.view.request
            self._row.append(node)

    def on_hit(self, node: int) -> None:
        super().on_hit(node)
        self._touch(node)

    def on_miss(self, node: int) -> None:
        self._supersede()
        self._touch(node)

    def after_request(self) -> None:
        self._supersede()
        self._is_new = True
        row, self._row = self._row, []
        if not row:
            return
        session, slot = self.view.session, self.view.session % SESSIONS
        ending = self.view.finish + 1
        if session >= 0:
            known = self._sessions.get(slot)
            if known is None or known[0] != session:
                self._paces[slot] = {}
            else:
                self._note_gap(slot, known[1], known[2])
            self._sessions[slot] = (session, self.view.now_ms, ending, row)
        mean = self._paces[slot].get(ending, self._means[ending]) if session >= 0 else self._means[ending]
        factor = self.setting.options["turn_end"] if ending == TURN_END else 1.0
        for node in row:
            self._used_at[node], self._owner[node] = self.view.now_ms, session
            self._expected[node] = (mean, factor)

    def _note_gap(self, slot: int, since_ms: float, ending: int) -> None:
        gap = self.view.now_ms - since_ms
        pace = self._paces[slot].get(ending, self._means[ending])
        self._paces[slot][ending] = moved(pace, gap, self.setting.options["newest"])
        self._means[ending] = moved(self._means[ending], gap, max(1.0 / (self._gaps[ending] + 1), _SHARE_OF_ALL))
        self._gaps[ending] += 1

    def _supersede(self) -> None:
        is_new, self._is_new = self._is_new, False
        known = self._sessions.get(self.view.session % SESSIONS)
        if not is_new or not self.setting.is_tree or known is None or known[0] != self.view.session:
            return
        session, _, _, before = known
        left = [node for node in before if self._last[node] != self.view.request]
        if len(before) - len(left) >= self.setting.options["kept"] * len(before):
            for node in left:
                if self._owner[node] == session:
                    self._expected[node] = None

    def score(self, node: int) -> float:
        expected = self._expected.get(node)
        if expected is None:
            return 0.0
        age = self.view.now_ms - self._used_at[node]
        return return_rate(age, expected[0], self.setting.options["scale"], expected[1]) / self.view.size_of(node)

    def worth(self, node: int) -> float:
        if self.view.is_resident(node):
            return self.score(node)
        known = self._sessions.get(self.view.session % SESSIONS)
        ending = known[2] if known is not None and known[0] == self.view.session else 0
        mean = self._paces[self.view.session % SESSIONS].get(ending, self._means[ending]) if ending else self._means[0]
        return return_rate(0.0, mean, self.setting.options["scale"], 1.0) / self.view.size_of(node)


class State(NamedTuple):
    pool: Pool
    options: NDArray[np.float64]  # scale, turn_end, kept, newest
    length: NDArray[np.int64]  # one element: blocks of the request being served
    looked_up: NDArray[np.uint8]  # one element: what it shares with its predecessor is known
    row: NDArray[np.int32]  # these blocks
    means: NDArray[np.float64]  # by ending, over all sessions: of the logarithms of gaps
    gaps: NDArray[np.int64]  # by ending
    known: NDArray[np.int64]  # by slot: the session, -1: none
    tip: NDArray[np.int32]  # the last block of its last request
    at_ms: NDArray[np.float64]
    ending: NDArray[np.int8]
    paces: NDArray[np.float64]  # [slot, ending]; nan: no gap yet
    last: NDArray[np.int32]  # by node, as all that follow: last request that asked for it
    place: NDArray[np.int32]  # in that request
    used_at: NDArray[np.float64]
    owner: NDArray[np.int32]  # session of that request
    mean: NDArray[np.float64]
    factor: NDArray[np.float32]  # 0: superseded, or never asked for


def make_state(setting: Setting) -> State:
    nodes, options = setting.node_count, setting.options
    return State(
        make_pool(setting, int(options["sample"])),
        np.array([options["scale"], options["turn_end"], options["kept"], options["newest"]]),
        np.zeros(1, np.int64),
        np.zeros(1, np.uint8),
        np.zeros(nodes, np.int32),
        np.zeros(ENDINGS),
        np.zeros(ENDINGS, np.int64),
        np.full(SESSIONS, -1, np.int64),
        np.full(SESSIONS, -1, np.int32),
        np.zeros(SESSIONS),
        np.zeros(SESSIONS, np.int8),
        np.full((SESSIONS, ENDINGS), np.nan),
        np.full(nodes, -1, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes),
        np.full(nodes, -1, np.int32),
        np.zeros(nodes),
        np.zeros(nodes, np.float32),
    )


@kernel_part
def touch(cache: Cache, state: State, node: int) -> None:
    if state.last[node] != cache.counts[REQUEST]:
        state.last[node] = cache.counts[REQUEST]
        state.place[node] = state.length[0]
        state.row[state.length[0]] = node
        state.length[0] += 1


@kernel_part
def note_gap(state: State, slot: int, now_ms: float) -> None:
    """What the session's return says about it and about all sessions."""
    gap = now_ms - state.at_ms[slot]
    ending = int(state.ending[slot])
    pace = state.paces[slot, ending]
    if math.isnan(pace):
        pace = state.means[ending]
    state.paces[slot, ending] = moved(pace, gap, state.options[3])
    state.means[ending] = moved(state.means[ending], gap, max(1.0 / (state.gaps[ending] + 1), _SHARE_OF_ALL))
    state.gaps[ending] += 1


@kernel_part
def supersede(cache: Cache, state: State) -> None:
    """Blocks of the session's last request that this one no longer has; once in a request, when its hits are known."""
    session = int(cache.facts[SESSION])
    slot = session % SESSIONS
    if state.looked_up[0] or not cache.counts[IS_TREE] or session < 0 or state.known[slot] != session:
        return
    state.looked_up[0] = 1
    tip = int(state.tip[slot])
    node = tip
    while node >= 0 and state.last[node] != cache.counts[REQUEST]:
        node = int(cache.parent[node])
    common = node
    kept = int(state.place[common]) + 1 if common >= 0 else 0
    length = int(state.place[tip]) + 1
    if kept < state.options[2] * length:
        return
    node = tip
    while node != common:
        if state.owner[node] == session:
            state.factor[node] = 0.0
        node = int(cache.parent[node])


@kernel_part
def miss(cache: Cache, state: State, node: int) -> None:
    supersede(cache, state)
    touch(cache, state, node)


@kernel_part
def after_request(cache: Cache, state: State) -> None:
    supersede(cache, state)
    state.looked_up[0] = 0
    session = int(cache.facts[SESSION])
    slot = session % SESSIONS
    ending = int(cache.facts[FINISH]) + 1
    now_ms = cache.now_ms[0]
    length = int(state.length[0])
    if length == 0:
        return
    if session >= 0:
        if state.known[slot] == session:
            note_gap(state, slot, now_ms)
        else:
            state.paces[slot, :] = np.nan
        state.known[slot] = session
        state.tip[slot] = state.row[length - 1]
        state.at_ms[slot] = now_ms
        state.ending[slot] = ending
    mean = state.means[ending]
    if session >= 0 and not math.isnan(state.paces[slot, ending]):
        mean = state.paces[slot, ending]
    factor = state.options[1] if ending == TURN_END else 1.0
    for at in range(length):
        node = int(state.row[at])
        state.used_at[node] = now_ms
        state.owner[node] = session
        state.mean[node] = mean
        state.factor[node] = factor
    state.length[0] = 0


@kernel_part
def score(cache: Cache, state: State, node: int) -> float:
    factor = float(state.factor[node])
    if factor == 0.0:
        return 0.0
    age = cache.now_ms[0] - state.used_at[node]
    return return_rate(age, state.mean[node], state.options[0], factor) / size_of(cache, node)


@kernel_part
def worth(cache: Cache, state: State, node: int) -> float:
    """Of a resident block its score; of one that asks to enter, as if its answer ended like the session's last one."""
    if cache.children[node] >= 0:
        return score(cache, state, node)
    session = int(cache.facts[SESSION])
    slot = session % SESSIONS
    ending = int(state.ending[slot]) if session >= 0 and state.known[slot] == session else 0
    mean = state.means[ending]
    if ending > 0 and not math.isnan(state.paces[slot, ending]):
        mean = state.paces[slot, ending]
    return return_rate(0.0, mean, state.options[0], 1.0) / size_of(cache, node)


POLICY = EvictionPolicy(
    "session_pace",
    Reference,
    sampled_hooks(make_state, score, on_hit=touch, on_miss=miss, after_request=after_request, worth=worth),
    _DEFAULTS,
)
