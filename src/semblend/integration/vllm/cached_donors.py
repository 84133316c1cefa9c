"""Donors that still lie in the engine's own cache: found by their public block hashes, pinned while they are claimed.

A donor's name for a block is its public hash, which covers every token before it and the tenant's salt. Whatever block
the engine keeps under that hash holds the donor's exact KV. Nothing is kept here but hashes: about 5 bytes per token
with blocks of 16.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from semblend.integration.core.donor_book import Donor

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import BlockHash, KVCacheBlock
    from vllm.v1.request import Request

    from semblend.contract import Run


class CachedDonors:
    """Hashes by donor, those donors that no store holds, and the blocks pinned in this scheduling pass.

    Pins last from a claim to the end of the pass, so the engine cannot give a source block to any request of the same
    step. Later steps may: workers carry out steps in order, and on a device the engine's stream waits for the step's
    loads before it does anything for the next step. So no pin outlives ``schedule()``, whatever happens to its request.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._manager: KVCacheManager | None = None
        self._hashes: dict[str, tuple[BlockHash, ...]] = {}
        self._only: OrderedDict[str, Donor] = OrderedDict()
        self._only_tokens = 0
        self._pinned: list[KVCacheBlock] = []

    def __len__(self) -> int:
        """Donors that only the cache holds."""
        return len(self._only)

    def bind(self, manager: KVCacheManager) -> None:
        self._manager = manager

    # -- which donors --------------------------------------------------------------------------------------------------

    def add(self, donor_id: str, request: Request, tokens: int) -> None:
        """``request`` was computed without a claim: its hashes are public, and its first ``tokens`` are the donor."""
        if hashes := tuple(request.block_hashes[: tokens // self._block_tokens]):
            self._hashes[donor_id] = hashes

    def tokens_of(self, donor_id: str) -> int:
        """The donor's tokens in full blocks; 0 if its hashes are not known."""
        return len(self._hashes.get(donor_id, ())) * self._block_tokens

    def may_hold(self, donor_id: str) -> bool:
        """Whether the donor's last full block is in the cache: the engine evicts a request's last blocks first."""
        hashes = self._hashes.get(donor_id)
        if self._manager is None or not hashes:
            return False
        return self._manager.block_pool.get_cached_block(hashes[-1], [0]) is not None

    def holds_alone(self, donor_id: str) -> bool:
        return donor_id in self._only

    def keep_alone(self, donor: Donor) -> list[Donor]:
        """No store holds this donor. Returns older ones to forget: the cache cannot hold more than its own size."""
        self._only[donor.donor_id] = donor
        self._only_tokens += donor.tokens
        size = 0 if self._manager is None else self._manager.block_pool.num_gpu_blocks * self._block_tokens
        gone = []
        while self._only_tokens > size:
            _, oldest = self._only.popitem(last=False)
            self._only_tokens -= oldest.tokens
            gone.append(oldest)
        return gone

    def remove(self, donor_id: str) -> Donor | None:
        """The donor, if only the cache held it."""
        self._hashes.pop(donor_id, None)
        if (donor := self._only.pop(donor_id, None)) is not None:
            self._only_tokens -= donor.tokens
        return donor

    def alone(self) -> list[str]:
        return list(self._only)

    # -- where their blocks are ----------------------------------------------------------------------------------------

    def locate(self, runs: Sequence[Run], running: Iterable[Request]) -> list[list[KVCacheBlock]]:
        """For each run its donor's blocks in the cache, from the run's first block on up to the first that is missing.

        The engine names a block by its hash when it schedules the tokens of it, before they are computed. Blocks that
        a running request fills in this pass do not hold their KV when this step's loads are made.
        """
        if self._manager is None or not self._hashes:
            return [[] for _ in runs]
        pool, size = self._manager.block_pool, self._block_tokens
        unwritten = {
            block.block_id
            for request in running
            for block in self._manager.get_blocks(request.request_id).blocks[0][request.num_computed_tokens // size :]
        }
        found = []
        for run in runs:
            needed = self._hashes.get(run.donor_id, ())[run.donor_start // size : -(-_donor_end(run) // size)]
            blocks: list[KVCacheBlock] = []
            for block_hash in needed:
                cached = pool.get_cached_block(block_hash, [0])
                if cached is None or cached[0].block_id in unwritten:
                    break
                blocks.append(cached[0])
            found.append(blocks)
            if run.donor_id in self._only:
                self._only.move_to_end(run.donor_id)
        return found

    def reaches_end(self, run: Run, blocks: Sequence[KVCacheBlock]) -> bool:
        return self._reached(run, blocks) >= _donor_end(run)

    def covered_tokens(self, runs: Sequence[Run], found: Sequence[Sequence[int]]) -> int:
        """How many tokens of the runs lie in the blocks that were found for them."""
        reached = [min(_donor_end(run), self._reached(run, blocks)) for run, blocks in zip(runs, found, strict=True)]
        return sum(max(0, end - run.donor_start) for run, end in zip(runs, reached, strict=True))

    def _reached(self, run: Run, blocks: Sequence[object]) -> int:
        """The donor position after the blocks found from the run's first one on."""
        return (run.donor_start // self._block_tokens + len(blocks)) * self._block_tokens

    def pin(self, found: Iterable[Sequence[KVCacheBlock]], needed_blocks: int) -> bool:
        """Keep the engine from giving these blocks away in this pass. False when it would lack blocks without them."""
        assert self._manager is not None, "blocks were found"
        pool = self._manager.block_pool
        blocks = list({block.block_id: block for part in found for block in part}.values())
        free = sum(block.ref_cnt == 0 for block in blocks)
        if pool.get_num_free_blocks() - free < needed_blocks:
            return False
        pool.touch(blocks)
        self._pinned.extend(blocks)
        return True

    def unpin(self) -> None:
        """The scheduling pass is over. The last blocks of a donor are evicted before its first."""
        blocks, self._pinned = self._pinned, []
        if blocks and self._manager is not None:
            self._manager.block_pool.free_blocks(reversed(blocks))


def _donor_end(run: Run) -> int:
    return run.donor_start + run.length
