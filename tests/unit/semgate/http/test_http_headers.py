"""Which headers pass which border."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semgate.http.faults import RequestRefused
from semgate.http.headers import ADMIN_KEY, CREDENTIALS, HOP_BY_HOP, find, find_text, for_client, for_upstream
from semgate.http.tenant import UNKNOWN_TENANT, TenantRule

NAMES = st.sampled_from(
    sorted(HOP_BY_HOP | CREDENTIALS | {ADMIN_KEY, b"host", b"content-type", b"x-session-id", b"traceparent", b"x-own"})
)
HEADERS = st.lists(st.tuples(NAMES, st.binary(max_size=8)), max_size=12).map(tuple)


def named_by_connection(headers: tuple[tuple[bytes, bytes], ...]) -> set[bytes]:
    values = [value for name, value in headers if name == b"connection"]
    return {each.strip().lower() for value in values for each in value.split(b",")}


@given(HEADERS, st.booleans())
def test_nothing_of_this_hop_or_of_ours_goes_up(headers: tuple[tuple[bytes, bytes], ...], forward: bool) -> None:
    up = for_upstream(headers, forward_authorization=forward)
    names = {name for name, _ in up}
    assert not names & (HOP_BY_HOP | {ADMIN_KEY, b"host", b"content-length", b"expect"})
    assert forward or not names & CREDENTIALS
    assert up[-1] == (b"accept-encoding", b"identity")
    named = named_by_connection(headers)
    allowed = HOP_BY_HOP | {ADMIN_KEY, b"host"} | named | (frozenset() if forward else CREDENTIALS)
    assert up[:-1] == tuple(pair for pair in headers if pair[0] not in allowed)


@given(HEADERS)
def test_replies_keep_everything_but_the_hop(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    named = named_by_connection(headers)
    assert for_client(headers) == [pair for pair in headers if pair[0] not in HOP_BY_HOP and pair[0] not in named]


def test_headers_named_by_connection_stay_here() -> None:
    headers = ((b"connection", b"close, X-Secret"), (b"x-secret", b"1"), (b"x-other", b"2"))
    assert find(for_upstream(headers, forward_authorization=True), b"x-secret") is None
    assert for_client(headers) == [(b"x-other", b"2")]


def test_every_connection_header_counts() -> None:
    headers = ((b"connection", b"close"), (b"connection", b"X-Secret"), (b"x-secret", b"1"), (b"x-other", b"2"))
    assert find(for_upstream(headers, forward_authorization=True), b"x-secret") is None
    assert for_client(headers) == [(b"x-other", b"2")]


def test_the_caller_may_drop_more() -> None:
    up = for_upstream(((b"x-a", b"1"), (b"x-b", b"2")), forward_authorization=True, drop=frozenset({b"x-a"}))
    assert [name for name, _ in up] == [b"x-b", b"accept-encoding"]


def test_a_blank_value_is_absent() -> None:
    assert find_text(((b"x-session-id", b"  "),), b"x-session-id") is None
    assert find_text(((b"x-session-id", b" a\xe9 "),), b"x-session-id") == "a\xe9"


SECRET = b"s" * 32


def test_a_claimed_tenant_counts_only_where_it_is_trusted() -> None:
    headers = ((b"x-tenant-id", b"alice"), (b"authorization", b"Bearer k1"))
    trusting, careful = (TenantRule(SECRET, trust_tenant_header=trust) for trust in (True, False))
    assert trusting.tenant_of(headers) == "tenant:alice"
    assert careful.tenant_of(headers).startswith("key:")
    assert careful.tenant_of(headers[:1]) == UNKNOWN_TENANT


@pytest.mark.parametrize("second", [b"alice", b"bob", b""])
def test_two_claims_of_a_tenant_are_refused_where_they_count(second: bytes) -> None:
    headers = ((b"x-tenant-id", b"alice"), (b"x-tenant-id", second))
    with pytest.raises(RequestRefused, match="ambiguous_tenant"):
        TenantRule(SECRET, trust_tenant_header=True).tenant_of(headers)
    assert TenantRule(SECRET, trust_tenant_header=False).tenant_of(headers) == UNKNOWN_TENANT


@pytest.mark.parametrize("claim", [b"unknown", b"key:00"])
def test_a_header_cannot_name_another_kind_of_tenant(claim: bytes) -> None:
    assert (
        TenantRule(SECRET, trust_tenant_header=True).tenant_of(((b"x-tenant-id", claim),)) == f"tenant:{claim.decode()}"
    )


def test_a_key_is_one_tenant_however_it_is_written() -> None:
    rule = TenantRule(SECRET, trust_tenant_header=False)
    written = (
        ((b"authorization", b"Bearer k1"),),
        ((b"authorization", b"bearer k1"),),
        ((b"authorization", b"  BEARER   k1 "),),
        ((b"x-api-key", b"k1"),),
        ((b"api-key", b" k1"),),
    )
    assert len({rule.tenant_of(headers) for headers in written}) == 1
    assert rule.tenant_of(((b"authorization", b"Basic k1"),)) != rule.tenant_of(written[0])
    assert rule.tenant_of(((b"authorization", b"Bearer "),)) == UNKNOWN_TENANT


def test_tenants_of_keys_are_keyed_digests() -> None:
    rule, other = (TenantRule(secret, trust_tenant_header=False) for secret in (SECRET, b"t" * 32))
    key = ((b"authorization", b"Bearer k1"),)
    assert rule.tenant_of(key) == rule.tenant_of(key)
    assert rule.tenant_of(key) != rule.tenant_of(((b"authorization", b"Bearer k2"),))
    assert rule.tenant_of(key) != other.tenant_of(key)
    assert "k1" not in rule.tenant_of(key)
