"""Small rules of the router: when to retry, which headers are sent, what a salt does."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.http.client import is_repeatable
from semgate.placement.decision import Decision
from semgate.router.request.answer import answer_headers, request_id_of, routing_headers
from semgate.router.request.forward import BURST, RetryBudget
from semgate.router.request.inspection import tenant_salt, with_cache_salt

DECISION = Decision(
    replica="replica-1",
    path="semantic_placement",
    policy="semantic_placement",
    exact_blocks=3,
    donor_tokens=512,
    similarity=0.75,
    scores_ms=(("replica-1", 9.0),),
    reason="x",
    decide_us=1.0,
)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/v1/chat/completions", True),
        ("POST", "/v1/embeddings", True),
        ("GET", "/v1/responses/r1", True),
        ("POST", "/v1/responses", False),
        ("POST", "/base/v1/%72esponses?stream=1", False),
        ("POST", "/v1/chat/completions?from=/v1/responses", True),
        ("DELETE", "/v1/models/x", False),
    ],
)
def test_what_may_be_asked_twice(method: str, path: str, expected: bool) -> None:
    assert is_repeatable(method, path) is expected


@given(st.lists(st.booleans(), max_size=400), st.floats(0.0, 1.0))
def test_retries_never_exceed_the_burst_and_the_fraction(turns: list[bool], fraction: float) -> None:
    budget = RetryBudget(fraction)
    spent = 0
    for earns in turns:
        if earns:
            budget.earn()
        else:
            spent += budget.spend()
    assert spent <= BURST + fraction * sum(turns) + 1e-6


@given(st.binary(max_size=200))
def test_a_request_id_is_a_plain_word(given_id: bytes) -> None:
    made = request_id_of(((b"x-request-id", given_id),))
    assert made.isascii()
    assert (
        made.replace(".", "").replace("_", "").replace(":", "").replace("-", "").isalnum() or made.strip(".-_:") == ""
    )
    assert len(made) <= 128
    assert "\n" not in made


def test_request_ids_of_clients_are_kept_and_ours_are_new() -> None:
    assert request_id_of(((b"x-request-id", b"abc-1.2:3"),)) == "abc-1.2:3"
    assert request_id_of(()) != request_id_of(())
    assert request_id_of(((b"x-request-id", b"two words"),)) != "two words"
    assert request_id_of(((b"x-request-id", b"a\n"),)) != "a\n"


def test_the_promised_headers() -> None:
    named = dict(routing_headers("r1", DECISION))
    assert named == {
        b"x-request-id": b"r1",
        b"x-semblend-routing-path": b"semantic_placement",
        b"x-semblend-routing-worker": b"replica-1",
        b"x-semblend-routing-similarity": b"0.7500",
        b"x-semantickv-replica": b"replica-1",
    }
    upstream = ((b"connection", b"close"), (b"x-semblend-routing-path", b"forged"), (b"content-type", b"a/b"))
    assert answer_headers(upstream, ((b"x-request-id", b"r1"),)) == [
        (b"content-type", b"a/b"),
        (b"x-request-id", b"r1"),
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)


@given(st.dictionaries(st.text(max_size=9), JSON, max_size=5), st.sampled_from([b"", b" ", b"\n\t"]), st.booleans())
def test_a_salt_is_added_last_and_changes_nothing_else(body: dict[str, object], tail: bytes, indent: bool) -> None:
    raw = json.dumps(body, indent=2 if indent else None).encode() + tail
    salted = with_cache_salt(raw, "S")
    assert salted is not None
    assert json.loads(salted) == {**body, "cache_salt": "S"}
    assert salted.startswith(raw.rstrip()[:-1])


def test_a_clients_own_salt_cannot_win() -> None:
    salted = with_cache_salt(b'{"cache_salt": "of another tenant"}', "ours")
    assert salted is not None
    assert json.loads(salted)["cache_salt"] == "ours"


@given(st.binary(max_size=60))
def test_what_is_no_object_is_not_salted(raw: bytes) -> None:
    salted = with_cache_salt(raw, "S")
    if salted is not None:
        assert json.loads(salted)["cache_salt"] == "S"


@given(st.tuples(st.text(max_size=6), st.text(max_size=6)), st.tuples(st.text(max_size=6), st.text(max_size=6)))
def test_salts_of_two_tenants_differ(first: tuple[str, str], second: tuple[str, str]) -> None:
    same = tenant_salt(b"k", *first) == tenant_salt(b"k", *second)
    assert same == (first == second)


def test_evidence_of_others_is_not_revealed() -> None:
    named = dict(routing_headers("r1", replace(DECISION, own_evidence=False)))
    assert set(named) == {b"x-request-id", b"x-semblend-routing-worker", b"x-semantickv-replica"}
