"""The planner: tokens in, a verified plan or a decline out. Called by adapters and the offline bench."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ContractError, DonorError
from semblend.align.pair import align_pair
from semblend.contract import Decline, DeclineReason, Discovery, Namespace, ReusePlan
from semblend.fingerprint.anchors import GRAM, GUARANTEE, select_anchors, thin_periodic
from semblend.pipeline.semantic import SemanticFinder, start_finder
from semblend.pipeline.tokens import TokenIds, as_count, as_donor_id, as_tokens
from semblend.plan.choose import choose
from semblend.plan.compose import DONOR, LENGTH, ascending, compose
from semblend.plan.gates import Gates, Prompt
from semblend.search.anchor_index import AnchorIndex, AnchorSet, FoundRuns
from semblend.search.context_trie import CHAIN
from semblend.settings import Settings

DEFAULT_BUDGET_BYTES: Final = 1 << 30
DEFAULT_SEMANTIC_WAIT_S: Final = 0.005
CANDIDATES: Final = 4
_ATTEMPTS: Final = 3
ENOUGH: Final = 0.9  # fraction of the prompt; above it the semantic path is not queried


@dataclass(slots=True)
class PlannerCounters:
    """Counts for metrics; no decision reads them."""

    registered: int = 0
    evicted: int = 0
    planned: int = 0
    declined: dict[DeclineReason, int] = field(default_factory=dict)


class _Search(NamedTuple):
    """What was found for a prompt, and the minimum length of a run to take from it."""

    found: FoundRuns
    min_run: int
    discoveries: tuple[Discovery, ...]


class Planner:
    """Finds content of earlier prompts in a new one and verifies, token by token, what may be reused.

    Thread-safe. ``plan`` never waits for ``register`` or ``forget``. Nothing is ever planned from a donor of another
    namespace, from a forgotten donor, or at a position where the tokens differ.

    ``semantic_wait_s`` bounds how long ``plan`` waits for the semantic path.
    """

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        gates: Gates | None = None,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        semantic_wait_s: float = DEFAULT_SEMANTIC_WAIT_S,
        finder: SemanticFinder | None = None,
    ) -> None:
        self.settings = settings if settings is not None else Settings.from_environment()
        self.gates = gates if gates is not None else Gates()
        self.counters = PlannerCounters()
        self._semantic_wait_s = semantic_wait_s
        self._index = AnchorIndex(budget_bytes, _donor_anchors, GRAM, GUARANTEE)
        self._finder = finder
        if finder is None and self.settings.enabled:
            self._finder = start_finder(self.settings.embedder)

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, donor_id: str) -> bool:
        return donor_id in self._index

    def memory_bytes(self) -> int:
        """Bytes the token path holds; never above the budget once a call has returned."""
        return self._index.memory_bytes()

    @staticmethod
    def warm_up() -> None:
        """Compile the hot loops now (about 20 s once per installation, half a second with a warm cache).

        Call it at start-up, so that no request pays for it. Does nothing useful without the extra ``fast``.
        """
        namespace = Namespace(tenant=None, model=None)
        text = np.arange(2 * GUARANTEE, dtype=np.uint32)
        with Planner(settings=Settings(embedder="none"), budget_bytes=1 << 22) as planner:
            planner.register("long", np.arange(60_000, dtype=np.uint32), namespace)  # enough to make the table grow
            for i in range(CHAIN + 2):  # enough of them to need a trie
                planner.register(str(i), np.append(text, np.uint32(i)), namespace)
            planner.plan(np.concatenate([text[:70], text]), namespace, exact_prefix_tokens=1)
            planner.forget("0")

    def register(
        self, donor_id: str, token_ids: TokenIds, namespace: Namespace, text: str | None = None
    ) -> tuple[str, ...]:
        """Register a donor under its namespace, replacing one with the same id. Returns the donors evicted for it.

        The donor is findable when this returns. ``text`` feeds the semantic path in the background. All namespaces
        share one id space: let the server choose ids, never a client.
        """
        if unknown := namespace.unknown_components():
            raise DonorError(f"donor '{donor_id}': unknown namespace components {', '.join(unknown)}")
        tokens = as_tokens(token_ids)
        if not len(tokens):
            raise DonorError(f"donor '{donor_id}' has no tokens")
        evicted = self._index.add(as_donor_id(donor_id), tokens, namespace)
        self.counters.registered += 1
        self.counters.evicted += len(evicted)
        if self._finder is not None:
            for gone in evicted:
                self._finder.forget(gone)
            if text is not None:
                self._finder.register(donor_id, namespace, text)
            else:
                self._finder.forget(donor_id)
        return tuple(evicted)

    def forget(self, donor_id: str) -> bool:
        """Remove a donor. No plan that starts after this returns can use it. False if it was not registered."""
        known = self._index.remove(donor_id)
        if self._finder is not None:
            self._finder.forget(donor_id)
        return known

    def plan(
        self, token_ids: TokenIds, namespace: Namespace, exact_prefix_tokens: int = 0, text: str | None = None
    ) -> ReusePlan | Decline:
        """Which part of this prompt, beyond the engine's own prefix hit, can be reused from which donors."""
        if not isinstance(namespace, Namespace):
            raise ContractError(f"plan() needs a Namespace, not {type(namespace).__name__}")
        answer = self._plan(as_tokens(token_ids), namespace, exact_prefix_tokens, text)
        if isinstance(answer, ReusePlan):
            self.counters.planned += 1
        else:
            self.counters.declined[answer.reason] = self.counters.declined.get(answer.reason, 0) + 1
        return answer

    def stage(self, text: str, namespace: Namespace) -> None:
        """Start the semantic look-up of a new prompt, so that ``plan`` finds the answer ready."""
        if self._finder is not None:
            self._finder.stage(text, namespace)

    @property
    def has_semantic_path(self) -> bool:
        """Whether this planner uses texts."""
        return self._finder is not None

    def shared_prefix(self, donor_id: str, token_ids: TokenIds) -> int:
        """The length of the common prefix of the donor and the prompt, in tokens; 0 for an unknown donor."""
        tokens = as_tokens(token_ids)
        with self._index.reading():
            slot = self._index.slot_of(donor_id)
            return 0 if slot is None else int(self._index.shared_prefixes((slot,), tokens)[0])

    def tokens_of(self, donor_id: str) -> NDArray[np.uint32] | None:
        """The tokens of a registered donor."""
        return self._index.tokens_of(donor_id)

    def describe(self, donor_id: str, namespace: Namespace, text: str) -> None:
        """Add the text of a registered donor for the semantic path, if it was not available with the tokens."""
        if self._finder is not None and donor_id in self._index:
            self._finder.register(donor_id, namespace, text)

    def discover(self, text: str, namespace: Namespace, wait_s: float = 0.0) -> tuple[Discovery, ...]:
        """Donors that resemble a text; for reports, never a permission to reuse. Waits at most ``wait_s``."""
        if self._finder is None or not self.settings.enabled:
            return ()
        found = self._finder.find(
            text, namespace, limit=CANDIDATES, min_similarity=self.settings.min_similarity, wait_s=wait_s
        )
        return tuple(d for d in found if self._index.namespace_of(d.donor_id) == namespace)

    def drain(self, timeout_s: float = 60.0) -> bool:
        """Wait until the semantic path has indexed all registered texts. For offline work and tests."""
        return True if self._finder is None else self._finder.drain(timeout_s)

    def close(self) -> None:
        if self._finder is not None:
            self._finder.close()

    def __enter__(self) -> Planner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _plan(
        self, tokens: NDArray[np.uint32], namespace: Namespace, exact_prefix_tokens: int, text: str | None
    ) -> ReusePlan | Decline:
        if not self.settings.enabled:
            return Decline(DeclineReason.DISABLED)
        if unknown := namespace.unknown_components():
            return Decline(DeclineReason.NAMESPACE_UNKNOWN, ", ".join(unknown))
        if len(tokens) < self.gates.min_prompt_tokens:
            return Decline(
                DeclineReason.PROMPT_TOO_SHORT,
                f"{len(tokens)} tokens; min_prompt_tokens is {self.gates.min_prompt_tokens}",
            )
        floor = as_count(exact_prefix_tokens, "exact_prefix_tokens")
        limit = len(tokens) - 1  # the engine computes at least the last token
        if floor >= limit:
            return Decline(DeclineReason.EXACT_PREFIX_COVERS, f"{floor} of {len(tokens)} tokens are an exact prefix")

        for attempt in range(1, _ATTEMPTS + 1):
            with self._index.reading():  # one read section for everything read from a slot
                search = self._search(tokens, namespace, floor, limit, text)
                answer, gone = self._answer(search, tokens, floor, limit)
                if not gone:
                    return answer
                while gone and attempt == _ATTEMPTS:  # plan with the remaining donors; fewer each time
                    search = search._replace(found=search.found.without(gone))
                    answer, gone = self._answer(search, tokens, floor, limit)
                if not gone and isinstance(answer, ReusePlan):
                    return answer
        return Decline(DeclineReason.STALE, "donors were evicted during planning")

    def _search(
        self, tokens: NDArray[np.uint32], namespace: Namespace, floor: int, limit: int, text: str | None
    ) -> _Search:
        """What the token path finds and, where much of the prompt is left, what similarity suggests in addition."""
        found = self._find(tokens, namespace, floor)
        min_run = self.gates.min_run_tokens
        if self._finder is None or text is None:
            return _Search(found, min_run, ())
        if _fewest(found, floor, limit, min_run)[:, LENGTH].sum() >= ENOUGH * (limit - floor):
            return _Search(found, min_run, ())
        discoveries = self.discover(text, namespace, self._semantic_wait_s)
        if not self.settings.exact_materialization_only:
            min_run = min(min_run, self.gates.min_fragment_tokens)
        return _Search(self._with_aligned(found, tokens, discoveries), min_run, discoveries)

    def _answer(
        self, search: _Search, tokens: NDArray[np.uint32], floor: int, limit: int
    ) -> tuple[ReusePlan | Decline, frozenset[str]]:
        """The gates' answer to a search, and the donors of a plan that were evicted meanwhile."""
        found = search.found
        if self.settings.discovery_only:
            pieces = _fewest(found, floor, limit, search.min_run)
            return self._discovery_only(found, pieces, search.discoveries, limit - floor), frozenset()
        answer, pieces = choose(
            Prompt(len(tokens), floor),
            found.rows,
            self._index.shared_prefixes(found.slots, tokens[:floor]),
            found.donor_ids,
            self.gates,
            min_run=search.min_run,
            strict_prefix_boundary=self.settings.strict_prefix_boundary,
            discoveries=search.discoveries,
            truncated=found.truncated,
        )
        if isinstance(answer, Decline):
            return answer, frozenset()
        donors = dict.fromkeys(pieces[:, DONOR].tolist())
        return answer, self._index.confirm([(found.donor_ids[donor], found.slots[donor]) for donor in donors])

    def _find(self, tokens: NDArray[np.uint32], namespace: Namespace, floor: int) -> FoundRuns:
        """Every run the token path guarantees. A run that begins in the exact prefix is found whole and cut later."""
        anchors = AnchorSet(*select_anchors(tokens, max(0, floor - GUARANTEE + 1)))
        return self._index.find(tokens, anchors, namespace, GRAM)

    def _with_aligned(
        self, found: FoundRuns, tokens: NDArray[np.uint32], discoveries: tuple[Discovery, ...]
    ) -> FoundRuns:
        """Add what pairwise alignment finds equal in the donors that similarity suggested."""
        rows, ids, slots = [found.rows], list(found.donor_ids), list(found.slots)
        for discovery in discoveries:
            slot = self._index.slot_of(discovery.donor_id)
            donor = self._index.tokens_of(discovery.donor_id)
            if slot is None or donor is None:
                continue
            alignment = align_pair(
                donor,
                tokens,
                min_run=self.gates.min_run_tokens,
                min_fragment=min(self.gates.min_fragment_tokens, self.gates.min_run_tokens),
                fuzzy=self.settings.fuzzy_chunks,
            )
            aligned = (
                [alignment.runs] if self.settings.exact_materialization_only else [alignment.runs, alignment.fragments]
            )
            for part in aligned:
                rows.append(np.column_stack([np.full(len(part), len(ids), np.int64), part]))
            ids.append(discovery.donor_id)
            slots.append(slot)
        return FoundRuns(np.concatenate(rows), tuple(ids), tuple(slots), found.truncated)

    def _discovery_only(
        self, found: FoundRuns, pieces: NDArray[np.int64], discoveries: tuple[Discovery, ...], beyond: int
    ) -> Decline:
        by_tokens = tuple(
            Discovery(found.donor_ids[d], float(pieces[pieces[:, DONOR] == d, LENGTH].sum() / beyond), "tokens")
            for d in dict.fromkeys(pieces[:, DONOR].tolist())
        )
        if not by_tokens and not discoveries:
            return Decline(DeclineReason.NO_CANDIDATE)
        return Decline(DeclineReason.DISCOVERY_ONLY, f"{int(pieces[:, LENGTH].sum())} tokens", by_tokens + discoveries)


def _fewest(found: FoundRuns, floor: int, limit: int, min_run: int) -> NDArray[np.int64]:
    """All that is found, in the fewest pieces: for reports, which need no context."""
    rows = ascending(found.rows)
    return compose(np.column_stack([rows, np.zeros(len(rows), np.int64)]), floor, limit, min_run)


def _donor_anchors(tokens: NDArray[np.uint32]) -> AnchorSet:
    return AnchorSet(*thin_periodic(select_anchors(tokens)))
