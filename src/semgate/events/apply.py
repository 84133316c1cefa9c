"""One replica's batches into the index: payloads of its stream in, calls of ``BlockIndex`` out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from sembase.errors import ContractError
from sembase.ordered_stream import ResetReason, in_slices
from semgate.events.wire import Event, Removed, Stored, Unread, decode_batch
from semgate.index.blocks import BlockIndex
from semgate.index.keys import known_root_key, root_key

# Blocks on the accelerator. Copies in host memory or on disk are announced too, but take time to load.
DEVICE_MEDIUMS: Final = frozenset({None, "GPU"})

# Window and state layers keep other blocks than full attention; their blocks do not make a prefix reusable.
WHOLE_PREFIX_KINDS: Final = frozenset({None, "full_attention", "sink_full_attention", "mla_attention"})

MAX_ADAPTERS: Final = 4096

MAX_KNOWN_SALT_CHARACTERS: Final = 256  # clients may choose salts: the root of a longer one is computed each time

# One event that the index cannot take, for whatever reason, must not cost the others.
_REFUSALS: Final = (ContractError, ArithmeticError, LookupError, TypeError, ValueError)


@dataclass(slots=True)
class ApplyCounters:
    """``passed_over``: skipped events, of another medium or of layers that do not hold whole prefixes."""

    batches: int = 0
    events: int = 0
    passed_over: int = 0
    unknown_events: int = 0
    malformed_events: int = 0
    malformed_batches: int = 0


class ReplicaSink:
    """Writes to one slot. ``on_adapter`` receives the names of adapters, which requests give as their model."""

    def __init__(self, index: BlockIndex, slot: int, model: str, *, on_adapter: Callable[[str], None]) -> None:
        self.counters = ApplyCounters()
        self.block_tokens: int | None = None
        self._index = index
        self._slot = slot
        self._model = model
        self._group: int | None = None
        self._on_adapter = on_adapter
        self.adapters: set[str] = set()

    @property
    def group(self) -> int | None:
        """The group of layers whose blocks are followed; None before the first."""
        return self._group

    def resume(self, group: int | None, block_tokens: int | None, adapters: Iterable[str]) -> None:
        """The index holds what was announced before a restart of ours."""
        self._group, self.block_tokens = group, block_tokens
        for name in adapters:
            self._note_adapter(name)

    def _note_adapter(self, name: str) -> None:
        if name not in self.adapters:
            if len(self.adapters) < MAX_ADAPTERS:
                self.adapters.add(name)
            self._on_adapter(name)

    async def deliver(self, payload: bytes) -> None:
        try:
            events = decode_batch(payload)
        except ContractError:
            self.counters.malformed_batches += 1
            return
        self.counters.batches += 1
        async for event in in_slices(events):
            if event is Unread.UNKNOWN:
                self.counters.unknown_events += 1
            elif event is Unread.MALFORMED:
                self.counters.malformed_events += 1
            else:
                self.counters.events += 1
                self._apply(event)

    def reset(self, reason: ResetReason) -> None:
        self._index.cleared(self._slot)
        self._group = None

    def _apply(self, event: Event) -> None:
        try:
            if isinstance(event, Stored):
                self._stored(event)
            elif isinstance(event, Removed):
                self._removed(event)
            else:
                self._index.cleared(self._slot)
        except _REFUSALS:
            self.counters.malformed_events += 1

    def _stored(self, event: Stored) -> None:
        if event.medium not in DEVICE_MEDIUMS or event.group_kind not in WHOLE_PREFIX_KINDS:
            self.counters.passed_over += 1
            return
        if self._group is not None and event.group != self._group:
            self.counters.passed_over += 1
            return
        key_of = known_root_key if len(event.salt or "") <= MAX_KNOWN_SALT_CHARACTERS else root_key
        root = key_of(self._model, event.salt, event.lora)
        self._index.stored(self._slot, event.hashes, event.parent, event.tokens, event.block_tokens, root, event.extras)
        self._group = event.group
        self.block_tokens = event.block_tokens
        if event.lora is not None:
            self._note_adapter(event.lora)

    def _removed(self, event: Removed) -> None:
        if event.medium not in DEVICE_MEDIUMS or event.group != self._group:
            self.counters.passed_over += 1
            return
        self._index.removed(self._slot, event.hashes)
