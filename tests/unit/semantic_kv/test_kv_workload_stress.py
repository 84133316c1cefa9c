"""The generators: the published shapes, chance by seed alone, and the kinds of reuse the descriptions name."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from tests.unit.sembase.counted_reuse import counted_reuse

from semantic_kv.workload import BASIC, STRESS, WORKLOADS, Workload, make_workload
from sembase.errors import ConfigurationError
from sembase.labels import LABELS
from sembase.tokenizer import WordTokenizer
from sembase.trace.build import build_trace

PUBLISHED = {
    "low_memory_rag_stress": (101, 36, 7, 2700),
    "shared_system_prompt_high_reuse": (202, 48, 6, 220),
    "tool_agent_session_reuse": (303, 34, 8, 360),
    "legal_review_long_context": (404, 28, 6, 1900),
    "workload_shift_static_vs_adaptive": (505, 44, 6, 2700),
}
EVERY = (*STRESS, *BASIC)


def test_the_published_numbers() -> None:
    assert set(STRESS) == set(PUBLISHED)
    assert set(EVERY) == set(WORKLOADS.names())
    for name, numbers in PUBLISHED.items():
        kind = WORKLOADS.get(name)
        assert (kind.seed, kind.sessions, kind.requests_per_session, kind.capacity_tokens) == numbers


@pytest.mark.parametrize("name", EVERY)
def test_every_workload_is_whole(name: str) -> None:
    workload, kind = make_workload(name), WORKLOADS.get(name)
    records = workload.records
    assert workload.name == name
    assert workload.capacity_tokens == kind.capacity_tokens
    assert len(records) == kind.sessions * kind.requests_per_session
    assert Counter(Counter(r.session_id for r in records).values()) == {kind.requests_per_session: kind.sessions}
    assert all(a.timestamp_ms <= b.timestamp_ms for a, b in pairwise(records))
    assert len({record.request_id for record in records}) == len(records)
    workload.trace.check()
    again = build_trace(records, name)
    assert np.array_equal(again.nodes, workload.trace.nodes)
    assert set(workload.trace.tenant.tolist()) == {0}
    assert (workload.trace.output_tokens > 0).all()


@pytest.mark.parametrize("name", EVERY)
def test_chance_comes_from_the_seed(name: str) -> None:
    first, again, other = (make_workload(name, seed=seed, sessions=4) for seed in (None, None, 1))
    assert first.records == again.records
    assert first.records != other.records
    assert other.name == f"{name}_seed1"


@pytest.mark.parametrize("name", EVERY)
def test_token_counts_hold_in_the_joined_prompt(name: str) -> None:
    """What the blocks say and what a tokenizer finds in the whole prompt are the same number."""
    counter = WordTokenizer()
    for record in make_workload(name, sessions=3).records:
        prompt = "".join(block.text or "" for block in record.blocks)
        assert counter.count(prompt) == record.prompt_tokens


def uses(workload: Workload, label: str) -> list[set[int]]:
    """For each content of a label, the sessions that used it."""
    trace = workload.trace
    sessions: dict[int, set[int]] = {}
    owner = np.repeat(trace.session, np.diff(trace.offsets))
    for node, session in zip(trace.nodes.tolist(), owner.tolist(), strict=True):
        if LABELS[trace.node_label[node]] == label:
            sessions.setdefault(int(trace.content[node]), set()).add(session)
    return list(sessions.values())


@pytest.mark.parametrize("name", STRESS)
def test_user_texts_are_one_off(name: str) -> None:
    workload = make_workload(name)
    assert len(uses(workload, "user")) == len(workload.records)


@pytest.mark.parametrize(
    ("name", "label"), [("tool_agent_session_reuse", "tool_output"), ("legal_review_long_context", "retrieved_context")]
)
def test_session_material_is_reused_in_its_session_only(name: str, label: str) -> None:
    workload = make_workload(name)
    assert all(len(sessions) == 1 for sessions in uses(workload, label))
    owners = workload.trace.session.tolist()
    assert owners != sorted(owners)  # sessions overlap: what fits is up to the policy


def test_retrieved_documents_are_shared_and_just_fit() -> None:
    workload = make_workload("low_memory_rag_stress")
    assert all(len(sessions) > 1 for sessions in uses(workload, "retrieved_context"))
    trace = workload.trace
    is_user = trace.node_label == LABELS.index("user")
    reusable = int(trace.node_tokens[~is_user].sum())
    churn = int(trace.node_tokens[is_user].sum()) // len(workload.records)
    assert reusable < workload.capacity_tokens < reusable + churn


def test_the_shared_blocks_fit_the_published_cache_but_not_beside_a_question() -> None:
    workload = make_workload("shared_system_prompt_high_reuse")
    assert len(uses(workload, "system")) == 1
    assert 4 < len(uses(workload, "template")) <= 8  # a rare application may not come
    assert max(record.prompt_tokens for record in workload.records) <= workload.capacity_tokens
    trace = workload.trace
    is_user = trace.node_label == LABELS.index("user")
    shared = int(trace.node_tokens[~is_user].sum())
    assert shared <= workload.capacity_tokens < shared + int(trace.node_tokens[is_user].min())


def test_the_shift_leaves_nothing_of_the_first_half() -> None:
    workload = make_workload("workload_shift_static_vs_adaptive")
    half = len(workload.records) // 2
    first = {block.content_hash for record in workload.records[:half] for block in record.blocks}
    second = {block.content_hash for record in workload.records[half:] for block in record.blocks}
    assert not first & second
    assert {b.semantic_type for r in workload.records[:half] for b in r.blocks} & {"code"} == set()
    assert {b.semantic_type for r in workload.records[half:] for b in r.blocks} & {"retrieved_context"} == set()


def test_a_chat_prompt_begins_with_the_one_before_it() -> None:
    records = make_workload("multi_turn_chat", sessions=5).records
    for session in {record.session_id for record in records}:
        turns = [record.blocks for record in records if record.session_id == session]
        assert all(after[: len(before)] == before for before, after in pairwise(turns))


def test_shuffled_passages_repeat_where_a_prefix_cache_does_not_look() -> None:
    found = counted_reuse(make_workload("shuffled_retrieval").records)
    assert found.added_tokens > 0.4 * found.prompt_tokens


def test_tenants_share_nothing() -> None:
    together, apart = (make_workload("shared_system_prompt_high_reuse", tenants=n) for n in (1, 4))
    # Each tenant has its own copy of the system prompt and of the templates that it uses.
    used = {(record.tenant_id, record.blocks[1].content_hash) for record in apart.records}
    copies = len(used) - len({template for _, template in used})
    assert copies > 0
    assert apart.trace.node_count == together.trace.node_count + 3 + copies
    assert set(apart.trace.tenant.tolist()) == {0, 1, 2, 3}


def test_sizes_can_be_chosen_and_must_make_sense() -> None:
    assert len(make_workload("zipf_documents", sessions=2, requests_per_session=3).records) == 6
    with pytest.raises(ConfigurationError, match="must be at least 1"):
        make_workload("zipf_documents", sessions=0)
    with pytest.raises(ConfigurationError, match="Did you mean 'zipf_documents'"):
        make_workload("zipf_document")
