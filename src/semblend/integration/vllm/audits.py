"""Fetched donors computed again while the engine is idle, in the blocks of the finished request that used one.

One audit at a time. It ends without a result when a request arrives; the donor is then due again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import ReusePlan
from semblend.fleet.donor_parts import DonorPart
from semblend.integration.vllm.commands import AuditCommand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semblend.integration.vllm.request_record import VllmRequest

MAX_DUE: Final = 256
SLICE_TOKENS: Final = 256  # computed per idle step
MAX_HELD_FRACTION: Final = 0.25  # of the engine's blocks


@dataclass(slots=True)
class _Audit:
    request_id: str
    donor_id: str
    part: DonorPart
    block_ids: tuple[int, ...]
    tokens: NDArray[np.int64]
    ranges: tuple[tuple[int, int], ...]
    at: int = 0


class Audits:
    """On the scheduler's thread. Every fetched donor is due once."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._due: OrderedDict[str, DonorPart] = OrderedDict()
        self._audit: _Audit | None = None
        self._unheld: list[str] = []

    @property
    def has_waiting_blocks(self) -> bool:
        return self._audit is not None or bool(self._unheld)

    def fetched(self, donor_id: str, part: DonorPart) -> None:
        self._due[donor_id] = part
        if len(self._due) > MAX_DUE:
            self._due.popitem(last=False)

    def offer(self, record: VllmRequest, block_ids: Sequence[int], boundary: int, total_blocks: int) -> bool:
        """A request is finished. True when its blocks must wait for an audit of a donor that it used.

        An audit overwrites blocks: only those from ``boundary`` on, which had private hashes and have none now.
        """
        if self._audit is not None or len(block_ids) > MAX_HELD_FRACTION * total_blocks:
            return False
        plan = record.plan
        used = plan.donor_ids if isinstance(plan, ReusePlan) else ()
        donor_id = next((donor_id for donor_id in used if donor_id in self._due), None)
        if donor_id is None:
            return False
        own_blocks = tuple(block_ids[-(-boundary // self._block_tokens) :])
        part = self._due[donor_id]
        size = min(len(part.donor.tokens), len(own_blocks) * self._block_tokens)
        held = part.ranges or ((0, len(part.donor.tokens)),)
        ranges = tuple((start, min(end, size)) for start, end in held if start < size)
        if not ranges:
            return False
        tokens = part.donor.tokens[: ranges[-1][1]].astype(np.int64)
        blocks = own_blocks[: -(-len(tokens) // self._block_tokens)]
        self._audit = _Audit(record.request_id, donor_id, part, blocks, tokens, ranges)
        del self._due[donor_id]
        return True

    def next_slice(self, *, idle: bool) -> AuditCommand | None:
        """This step's slice, if the engine is idle; else the audit ends."""
        audit = self._audit
        if audit is None or audit.at == len(audit.tokens):
            return None
        if not idle:
            self.stop()
            return None
        start, audit.at = audit.at, min(audit.at + SLICE_TOKENS, len(audit.tokens))
        ranges = audit.ranges if audit.at == len(audit.tokens) else ()
        ids = audit.tokens[start : audit.at]
        return AuditCommand(audit.request_id, audit.donor_id, audit.block_ids, start, ids, ranges)

    def is_done(self, donor_id: str) -> bool:
        """The workers report this audit. False if it was ended meanwhile."""
        if self._audit is None or self._audit.donor_id != donor_id:
            return False
        self._unheld.append(self._audit.request_id)
        self._audit = None
        return True

    def stop(self) -> None:
        """End the audit; the next commands return the blocks lent to it."""
        if self._audit is not None:
            self._unheld.append(self._audit.request_id)
            self._due[self._audit.donor_id] = self._audit.part
            self._audit = None

    def abandon(self, request_id: str) -> None:
        """The blocks of this request are freed now."""
        if self._audit is not None and self._audit.request_id == request_id:
            self._audit = None

    def forget_all(self) -> None:
        self.stop()
        self._due.clear()

    def take_unheld(self) -> list[str]:
        """Finished requests whose blocks can be released."""
        taken, self._unheld = self._unheld, []
        return taken
