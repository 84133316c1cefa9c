"""Prefix breaks are found in a trace of chained ids; the text after them is kept only where that is assumed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from benchmarks.simulator.breaks import find_breaks, keep_text
from tests.unit.semantic_kv.test_kv_reuse_repair import reuse, session, trace_of

from semantic_kv.simulate import simulate


def test_a_break_is_a_prompt_that_replaces_one_of_its_session() -> None:
    rows = session(5, broken_at=2)
    trace = trace_of(rows)
    chained = replace(trace, content=np.arange(trace.node_count, dtype=np.int32))
    (only,) = find_breaks(chained)
    assert (only.request, only.earlier, only.kept_blocks, only.following) == (2, 1, 0, 3)
    assert find_breaks(replace(chained, session=np.full(5, -1, np.int32))) == ()
    assumed = keep_text(chained, (only,))
    old, new = trace.nodes[trace.offsets[1] : trace.offsets[2]], trace.nodes[trace.offsets[2] : trace.offsets[3]]
    assert (assumed.content[new[1 : len(old)]] == assumed.content[old[1:]]).all()
    assert assumed.content[new[0]] != assumed.content[old[0]]
    arms = [simulate(each, capacity=999, reuse=reuse("blend_idle"), reference=True) for each in (trace, assumed)]
    assert arms[0].blended == arms[1].blended


def test_interleaved_conversations_of_a_session_are_not_breaks() -> None:
    main, other = session(4, None), session(4, None, head=500)
    rows = [row for pair in zip(main, other, strict=True) for row in pair]
    assert find_breaks(trace_of(rows)) == ()
