"""Trace columns and the interner: ids are dense, exact, per tenant; wrong columns are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import ContractError
from sembase.labels import LABELS, label_index
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace


def build(requests: list[tuple[int, list[int]]]) -> BlockTrace:
    interner = TreeInterner()
    rows = [interner.add(tenant, np.array(keys, dtype=np.int64), 16) for tenant, keys in requests]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return block_trace("t", offsets, np.concatenate([np.empty(0, np.int32), *rows]), interner, block_tokens=16)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-1, 2), st.lists(st.sampled_from([-(2**63), -1, 0, 1, 2**32, 2**63 - 1]), max_size=6)),
        max_size=25,
    )
)
def test_interner_is_a_dictionary_of_tenant_parent_and_key(requests: list[tuple[int, list[int]]]) -> None:
    trace = build(requests)
    trace.check()
    contents: dict[tuple[int, int], int] = {}
    nodes: dict[tuple[int, int], int] = {}
    expected = []
    for tenant, keys in requests:
        above = -1
        for key in keys:
            content = contents.setdefault((tenant, key), len(contents))
            above = nodes.setdefault((above, content), len(nodes))
            expected.append(above)
    assert trace.nodes.tolist() == expected
    assert trace.parent is not None
    assert trace.parent.tolist() == [parent for parent, _ in nodes]
    assert trace.content.tolist() == [content for _, content in nodes]


def test_interner_grows_past_its_first_room_and_keeps_ids() -> None:
    interner = TreeInterner()
    first = interner.add(0, np.arange(700, dtype=np.int64), 16)
    interner.add(0, np.arange(10_000, 20_000, dtype=np.int64), 16)
    assert interner.add(0, np.arange(700, dtype=np.int64), 16).tolist() == first.tolist()
    assert interner.node_count == 10_700


def test_equal_text_of_two_tenants_is_never_one_block() -> None:
    trace = build([(0, [1, 2]), (1, [1, 2])])
    assert trace.node_count == 4
    assert len(set(trace.content.tolist())) == 4


def test_block_set_joins_equal_content_behind_different_prefixes() -> None:
    trace = build([(0, [1, 2, 3]), (0, [4, 3])])
    blocks = trace.as_block_set()
    assert blocks.nodes.tolist() == [0, 1, 2, 3, 2]
    assert blocks.parent is None
    assert blocks.node_count == 4
    assert blocks.as_block_set() is blocks


def test_block_set_takes_tokens_and_labels_from_the_first_sight() -> None:
    interner = TreeInterner()
    first = interner.add(0, np.array([7], np.int64), 16, 2)
    second = interner.add(0, np.array([1, 7], np.int64), 64, 5)
    trace = block_trace("t", np.array([0, 1, 3]), np.concatenate([first, second]), interner)
    blocks = trace.as_block_set()
    assert (blocks.node_tokens[0], blocks.node_label[0]) == (16, 2)


def test_window_keeps_ids_and_flattening_gives_one_request_a_reference() -> None:
    trace = build([(0, [1, 2]), (0, [1, 3, 4]), (0, [1, 2])])
    part = trace.window(1, 3)
    assert part.offsets.tolist() == [0, 3, 5]
    assert part.nodes.tolist() == trace.nodes[2:].tolist()
    assert part.node_count == trace.node_count
    flat = part.flattened()
    assert flat.request_count == flat.reference_count == 5
    assert trace.window(2, 1).request_count == 0


def test_check_finds_the_request_that_breaks_the_chain() -> None:
    trace = build([(0, [1, 2]), (0, [1, 3])])
    broken = trace.nodes.copy()
    broken[3] = 1  # fine: 1 is also a child of 0
    replace(trace, nodes=broken).check()
    broken[3] = 0
    with pytest.raises(ContractError, match="request 1"):
        replace(trace, nodes=broken).check()
    broken[3] = 99
    with pytest.raises(ContractError, match="request 1"):
        replace(trace, nodes=broken).check()


def test_wrong_columns_are_refused() -> None:
    trace = build([(0, [1, 2])])
    with pytest.raises(ContractError, match="column nodes"):
        replace(trace, nodes=trace.nodes.astype(np.int64))
    with pytest.raises(ContractError, match="column session"):
        replace(trace, session=np.zeros(5, np.int32))
    with pytest.raises(ContractError, match="unknown request columns colour"):
        block_trace("t", trace.offsets, trace.nodes, TreeInterner(), colour=np.zeros(1))
    with pytest.raises(ContractError, match="tokens has 1 entries"):
        TreeInterner().add(0, np.array([1, 2], np.int64), np.array([1], np.int32))


def test_unknown_request_columns_say_unknown() -> None:
    trace = build([(0, [1])])
    assert trace.output_tokens.tolist() == trace.session.tolist() == [-1]
    assert np.isnan(trace.observed_ttft_ms).all()


def test_labels_have_indexes() -> None:
    assert [label_index(label) for label in LABELS] == list(range(8))
    with pytest.raises(ContractError, match="unknown semantic type 'poem'"):
        label_index("poem")
