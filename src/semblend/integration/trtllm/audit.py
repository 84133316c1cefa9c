"""What the connector found, in the lines that ``kvmend bench summarize-engine-events --engine trtllm`` reads.

Never run in TensorRT-LLM. Events of the contract go in, JSON objects named by their key ``event`` come out.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

from sembase.jsonl import SharedLog
from semblend.contract import (
    Declined,
    DonorEvicted,
    DonorRegistered,
    Event,
    FaultContained,
    LookupFinished,
)

MAX_BYTES: Final = 256 << 20


class Audit:
    """Appends a line per record; what cannot be written is counted. At ``max_bytes`` the file moves to ``<name>.1``."""

    def __init__(self, path: Path | None, max_bytes: int = MAX_BYTES) -> None:
        self._log = SharedLog(path, max_bytes) if path is not None else None

    @property
    def lost(self) -> int:
        return 0 if self._log is None else self._log.lost

    def write(self, event: Event) -> None:
        if (record := record_of(event)) is not None:
            self.note(record.pop("event"), **record)

    def note(self, event: str, **facts: Any) -> None:
        if self._log is None:
            return
        record = {"event": event, "timestamp_ms": time.time() * 1e3, **facts}
        line = json.dumps(record, sort_keys=True, allow_nan=False)
        self._log.write(lambda: line)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


def record_of(event: Event) -> dict[str, Any] | None:
    match event:
        case LookupFinished():
            beyond = event.prompt_tokens - event.exact_prefix_tokens
            return {
                "event": "lookup",
                "request_id": event.request_id,
                "found": bool(event.donor_ids),
                "similarity": event.similarity,
                "reuse_ratio": event.reusable_tokens / beyond if beyond else None,
                "rejection_reason": event.decline_reason,
                "num_computed_tokens": event.exact_prefix_tokens,
                "prompt_tokens": event.prompt_tokens,
                "reusable_tokens": event.reusable_tokens,
            }
        case DonorRegistered():
            return {
                "event": "donor_registered",
                "request_id": event.request_id,
                "donor_id": event.donor_id,
                "tokens": event.tokens,
            }
        case DonorEvicted():
            return {"event": "donor_evicted", "donor_id": event.donor_id, "reason": event.reason}
        case Declined():
            return {"event": "declined", "request_id": event.request_id, "reason": event.reason}
        case FaultContained():
            return {
                "event": "fault_contained",
                "request_id": event.request_id,
                "stage": event.stage,
                "error": event.error,
            }
        case _:  # this connector loads nothing
            return None
