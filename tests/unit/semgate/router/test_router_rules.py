"""Small rules of the router: when to ask again, which headers leave, what a salt does, what a log line holds."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semgate.fleet import Endpoint
from semgate.http.repeatable import is_repeatable
from semgate.http.request_body import read_request
from semgate.logs import JsonLines
from semgate.placement.decision import Decision
from semgate.router.contents import contents_of
from semgate.router.decision_record import Attempt, DecisionRecord
from semgate.router.metrics import RouterMetrics
from semgate.router.response_headers import answer_headers, request_id_of, routing_headers
from semgate.router.retry import BURST, RetryBudget
from semgate.router.roster import Roster
from semgate.router.salt import tenant_salt, with_cache_salt

DECISION = Decision(
    "replica-1", "semantic_placement", "semantic_placement", 3, 512, 0.75, (("replica-1", 9.0),), "x", 1.0
)

RECORD = DecisionRecord(
    request_id="r1",
    at_unix_ms=0,
    path="/v1/completions",
    tenant="t",
    session=None,
    stream=False,
    replica="a",
    route="cold_route",
    policy="round_robin",
    reason="x",
    exact_blocks=0,
    prompt_blocks=None,
    donor_tokens=0,
    similarity=None,
    scores_ms=(),
    decide_us=1.0,
    attempts=(),
    outcome="complete",
    status=200,
    first_byte_ms=1.0,
    ttft_ms=None,
    total_ms=1.0,
    answer_bytes=1,
    prompt_tokens=None,
    cached_tokens=None,
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
def test_retries_never_exceed_the_burst_and_the_share(turns: list[bool], share: float) -> None:
    budget = RetryBudget(share)
    spent = 0
    for earns in turns:
        if earns:
            budget.earn()
        else:
            spent += budget.spend()
    assert spent <= BURST + share * sum(turns) + 1e-6


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


def test_a_log_line_is_json_without_a_stack_trace() -> None:
    try:
        raise ValueError("canary in an exception")
    except ValueError as error:
        made = logging.LogRecord("other", logging.ERROR, "file", 1, "it %s", ("broke",), (type(error), error, None))
    said = json.loads(JsonLines().format(made))
    assert (said["event"], said["level"], said["logger"], said["exception"]) == (
        "it broke",
        "error",
        "other",
        "ValueError",
    )
    assert "canary" not in json.dumps(said)


def test_metrics_of_other_parts_are_read_when_asked_for() -> None:
    metrics = RouterMetrics()
    values = {"a": 1.0}
    metrics.observe(lambda: [("gauge", "semgate_test", "Test.", {"replica": name}, v) for name, v in values.items()])
    assert b'semgate_test{replica="a"} 1.0' in metrics.text()
    values.clear()
    values["b"] = 2.0
    assert b'replica="a"' not in metrics.text(), "a replica that left takes its series along"
    assert b'semgate_test{replica="b"} 2.0' in metrics.text()


def test_contents_are_labelled_and_belong_to_their_tenant() -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "system", "content": "Be kind."}]}).encode()
    of_one, again, of_two = (
        contents_of(read_request("/v1/chat/completions", (), body, tenant), body) for tenant in ("one", "one", "two")
    )
    assert of_one == again
    assert [each.label for each in of_one] == [0]
    assert {each.key for each in of_one}.isdisjoint(each.key for each in of_two)
    assert all(each.tokens >= 1 for each in of_one)


def test_evidence_of_others_is_not_told() -> None:
    named = dict(routing_headers("r1", replace(DECISION, own_evidence=False)))
    assert set(named) == {b"x-request-id", b"x-semblend-routing-worker", b"x-semantickv-replica"}


def test_a_replica_that_leaves_takes_its_attempts_along() -> None:
    metrics = RouterMetrics()
    roster = Roster((metrics,))
    for number in range(50):
        roster.apply([Endpoint(f"pod-{number}", "http://a:1")])
        metrics.finished(replace(RECORD, attempts=(Attempt(f"pod-{number}", 200, None, 1.0),)))
        metrics.finished(replace(RECORD, attempts=(Attempt(f"pod-{number - 1}", None, "cut_reset", 1.0),)))
    lines = [line for line in metrics.text().decode().splitlines() if line.startswith("semgate_attempts_total{")]
    assert sorted(lines) == [
        'semgate_attempts_total{replica="(left)",result="cut_reset"} 50.0',
        'semgate_attempts_total{replica="pod-49",result="200"} 1.0',
    ]
