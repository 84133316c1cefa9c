"""The semantic path: embedder and window index on one worker thread, queried from the scheduler's thread.

In: texts of donors and recipients. Out: ``Discovery`` values, which suggest donors to align and never permit reuse.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from hashlib import blake2b
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from sembase.errors import MissingDependencyError
from semblend.contract import Discovery, Namespace
from semblend.fingerprint.embed import Embedder, WeightsNotFoundError, build_embedder
from semblend.search.vectors import WindowIndex

STAGED_DONORS: Final = 16
_QUESTIONS_IN_A_ROW: Final = 8


@dataclass(frozen=True, slots=True)
class FinderCounters:
    """``dropped``: work that met a full queue. ``timeouts``: questions that were not answered in time."""

    registered: int
    dropped: int
    timeouts: int
    errors: int
    queue_length: int


@dataclass(frozen=True, slots=True)
class _Registration:
    """``generation`` identifies one registration: a donor that is forgotten and registered again gets a new one."""

    generation: int
    namespace: Namespace
    text: str


@dataclass(slots=True, eq=False)
class _Question:
    """A text that is being or has been looked up. Kept after the answer, so that repeating it costs nothing."""

    namespace: Namespace
    text: str | None
    depth: int
    answered: threading.Event = field(default_factory=threading.Event)
    vectors: NDArray[np.float32] | None = None
    found: tuple[tuple[int, float], ...] = ()
    index_version: int = -1


class SemanticFinder:
    """Registers donors and answers questions; the caller decides how long to wait.

    Forgetting is immediate: a forgotten donor is in no later answer, whatever the worker still has to do.
    """

    def __init__(
        self, embedder: Embedder, index: WindowIndex | None = None, *, queue_limit: int = 256, staged_limit: int = 64
    ) -> None:
        self._embedder = embedder
        self._index = index if index is not None else WindowIndex(embedder.dimensions)
        self._queue_limit = queue_limit
        self._staged_limit = staged_limit
        # Guards everything below. Never held while embedding or searching.
        self._changed = threading.Condition()
        self._registrations: deque[_Registration] = deque()
        self._questions: deque[_Question] = deque()
        self._retired: deque[int] = deque()
        self._staged: OrderedDict[tuple[Namespace, bytes], _Question] = OrderedDict()
        self._donor_of: dict[int, str] = {}
        self._generation_of: dict[str, int] = {}
        self._next_generation = 0
        self._index_version = 0
        self._registered = self._dropped = self._timeouts = self._errors = 0
        self._last_error: Exception | None = None
        self._busy = self._closed = False
        self._worker = threading.Thread(target=self._work, name="semblend-semantic", daemon=True)
        self._worker.start()

    def register(self, donor_id: str, namespace: Namespace, text: str) -> bool:
        """Queue a donor; ``False`` when it was not accepted. Replaces an earlier registration of the same donor."""
        if not namespace.is_known:
            return False
        with self._changed:
            self._retire(donor_id)
            if self._closed or len(self._registrations) >= self._queue_limit:
                self._dropped += 1
                return False
            generation, self._next_generation = self._next_generation, self._next_generation + 1
            self._generation_of[donor_id] = generation
            self._donor_of[generation] = donor_id
            self._registrations.append(_Registration(generation, namespace, text))
            self._changed.notify_all()
            return True

    def forget(self, donor_id: str) -> None:
        with self._changed:
            self._retire(donor_id)
            self._changed.notify_all()

    def stage(self, text: str, namespace: Namespace) -> None:
        """Start the look-up of a text that ``find`` will need soon."""
        if namespace.is_known:
            with self._changed:
                self._ask(text, namespace, STAGED_DONORS)

    def find(
        self, text: str, namespace: Namespace, limit: int, min_similarity: float, wait_s: float
    ) -> tuple[Discovery, ...]:
        """Donors of the namespace that resemble the text, the most similar first.

        Waits at most ``wait_s``. Without an answer by then, returns an older answer to the same question or nothing;
        the worker continues, and the next call gets the answer. Errors of the worker are not raised here.
        """
        if not namespace.is_known or limit < 1:
            return ()
        with self._changed:
            question = self._ask(text, namespace, max(limit, STAGED_DONORS))
        if question is None:
            return ()
        in_time = question.answered.wait(max(0.0, wait_s))
        with self._changed:
            self._timeouts += not in_time
            living = [(self._donor_of.get(generation), similarity) for generation, similarity in question.found]
        chosen = [Discovery(d, s, self._embedder.name) for d, s in living if d is not None and s >= min_similarity]
        return tuple(chosen[:limit])

    @property
    def counters(self) -> FinderCounters:
        with self._changed:
            waiting = len(self._registrations) + len(self._questions)
            return FinderCounters(self._registered, self._dropped, self._timeouts, self._errors, waiting)

    @property
    def last_error(self) -> Exception | None:
        return self._last_error

    def drain(self, timeout_s: float) -> bool:
        """Wait until the worker has nothing left to do. ``False`` when that took longer than ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._has_work() or self._busy), timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop the worker after its current piece of work. Callers that still wait get no answer."""
        with self._changed:
            self._closed = True
            self._registrations.clear()
            self._retired.clear()
            for question in self._questions:
                question.answered.set()
            self._questions.clear()
            self._changed.notify_all()
        self._worker.join(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Called with the lock held.

    def _retire(self, donor_id: str) -> None:
        generation = self._generation_of.pop(donor_id, None)
        if generation is not None:
            del self._donor_of[generation]
            if not self._closed:
                self._retired.append(generation)

    def _ask(self, text: str, namespace: Namespace, depth: int) -> _Question | None:
        """The question staged for this text, queued for the worker if its answer is missing, too short or outdated."""
        key = (namespace, blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest())
        question = self._staged.get(key)
        if question is not None:
            self._staged.move_to_end(key)
            fresh = question.index_version == self._index_version and question.depth >= depth
            if not question.answered.is_set() or fresh:
                return question
        if self._closed or len(self._questions) >= self._queue_limit:
            self._dropped += not self._closed
            return question
        earlier = question
        question = _Question(namespace, text, depth)
        if earlier is not None:
            question.vectors, question.found = earlier.vectors, earlier.found
        self._staged[key] = question
        if len(self._staged) > self._staged_limit:
            self._staged.popitem(last=False)
        self._questions.append(question)
        self._changed.notify_all()
        return question

    def _has_work(self) -> bool:
        return bool(self._retired or self._questions or self._registrations)

    # The worker. Only this thread touches the embedder and the index.

    def _work(self) -> None:
        questions_in_a_row = 0
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed or self._has_work())
                if self._closed:
                    return
                self._busy = True
                retired = list(self._retired)
                self._retired.clear()
                # A caller waits for a question, so it goes first; but not always, or nothing would be registered.
                ask = self._questions and (not self._registrations or questions_in_a_row < _QUESTIONS_IN_A_ROW)
                question = self._questions.popleft() if ask else None
                registration = self._registrations.popleft() if not ask and self._registrations else None
                questions_in_a_row = questions_in_a_row + 1 if ask else 0
                version = self._index_version
            try:
                self._do(retired, question, registration, version)
            except Exception as error:  # noqa: BLE001 - a third-party embedder must not kill this thread
                with self._changed:
                    self._errors += 1
                    self._last_error = error
                    if question is not None:
                        self._unstage(question)
            finally:
                if question is not None:
                    question.answered.set()

    def _do(
        self, retired: list[int], question: _Question | None, registration: _Registration | None, version: int
    ) -> None:
        for generation in retired:
            self._index.remove(str(generation))
        if question is not None:
            self._answer(question, version)
        if registration is not None:
            self._index_donor(registration)

    def _answer(self, question: _Question, version: int) -> None:
        if question.vectors is None:
            assert question.text is not None
            question.vectors = self._embedder.embed(question.text)
        question.text = None  # the vectors are enough to repeat the search
        found = self._index.search(question.namespace, question.vectors, question.depth)
        with self._changed:
            question.found = tuple((int(generation), similarity) for generation, similarity in found)
            question.index_version = version

    def _index_donor(self, registration: _Registration) -> None:
        with self._changed:
            if registration.generation not in self._donor_of:
                return
        vectors = self._embedder.embed(registration.text)
        evicted = self._index.add(str(registration.generation), registration.namespace, vectors)
        with self._changed:
            # A donor forgotten meanwhile is in the retired list and is removed from the index before the next answer.
            self._registered += 1
            self._index_version += 1
            for generation in map(int, evicted):
                self._generation_of.pop(self._donor_of.pop(generation, ""), None)

    def _unstage(self, question: _Question) -> None:
        for key, staged in self._staged.items():
            if staged is question:
                del self._staged[key]
                return


def start_finder(embedder: str) -> SemanticFinder | None:
    """A finder with the embedder of that name, or ``None`` when it is ``none`` or cannot run here.

    Warns once about a missing package or missing weights: the token path works without them. ``auto`` is MiniLM without
    the warning, because it was not asked for. Loads the model before it returns.
    """
    try:
        built = build_embedder("minilm" if embedder == "auto" else embedder)
        return None if built is None else SemanticFinder(built)
    except (MissingDependencyError, WeightsNotFoundError) as error:
        if embedder == "auto":
            return None
        message = f"semantic search is off: {error} The token path works without it; embedder 'none' silences this."
        warnings.warn(message, stacklevel=3)
        return None
