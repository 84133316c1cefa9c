"""Block I/O of a device: rows in, requests for one block each out."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.simulator import block_device

from sembase.errors import ContractError


def test_a_volume_is_a_block_set(tmp_path: Path) -> None:
    (tmp_path / "io.csv").write_text("version,time,op,size,lbn\n1,5,2a,512,90\n1,6,2a,4096,80\n1,6,28,512,90\n")
    trace = block_device.load(tmp_path / "io.csv")
    assert trace.parent is None
    assert trace.nodes.tolist() == [0, 1, 0]
    assert trace.arrival_ms.tolist() == [5, 6, 6]
    assert trace.request_count == 3
    (tmp_path / "io.csv").write_text("version,time,op,size,lbn\n1,5,2a,512,x\n")
    with pytest.raises(ContractError, match=r"io\.csv line 2"):
        block_device.load(tmp_path / "io.csv")
