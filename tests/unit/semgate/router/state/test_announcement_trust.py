"""Announcements against what engines report: who is believed, and that one tenant cannot decide for others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from semgate.router.state.announcement_trust import COMPARED, MIN_COMPARED, PER_TENANT, AnnouncementTrust

KEPT, BROKEN = 64, 0


def seen(trust: AnnouncementTrust, *found: int, tenant: str = "t", slot: int = 1) -> AnnouncementTrust:
    for each in found:
        trust.compare(slot, tenant, 64, each)
    return trust


def test_a_replica_that_does_not_keep_its_announcements_is_no_longer_believed() -> None:
    trust = seen(AnnouncementTrust(), *[BROKEN] * (MIN_COMPARED - 1))
    assert trust.is_believed(1)
    seen(trust, BROKEN)
    assert not trust.is_believed(1)
    assert trust.is_believed(0)
    announced = np.array([3, 9, 4], np.int32)
    believed = trust.believed(announced)
    assert believed is not None
    assert believed.tolist() == [3, 0, 4]
    assert announced.tolist() == [3, 9, 4], "the caller's own array stays"
    assert trust.believed(np.array([3], np.int32)) is not None


def test_it_is_believed_again_when_it_keeps_them_and_when_its_slot_is_another_replicas() -> None:
    trust = seen(AnnouncementTrust(), *[BROKEN] * PER_TENANT, *[KEPT] * (PER_TENANT - 2))
    assert not trust.is_believed(1), "half is not enough"
    assert seen(trust, KEPT).is_believed(1)
    assert seen(AnnouncementTrust(), *[BROKEN] * MIN_COMPARED).is_believed(2)
    trust = seen(AnnouncementTrust(), *[BROKEN] * MIN_COMPARED)
    trust.forget(1)
    assert trust.is_believed(1)


@given(st.integers(1, 500), st.integers(2, 20))
def test_one_tenant_cannot_discredit_a_replica_that_serves_others(requests: int, others: int) -> None:
    """Whatever one tenant makes the engine report, two tenants with as many requests as it may count outweigh it."""
    trust = AnnouncementTrust()
    for other in range(others):
        seen(trust, *[KEPT] * PER_TENANT, tenant=f"honest {other}")
    seen(trust, *[BROKEN] * requests, tenant="hostile")
    assert trust.is_believed(1)


@given(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.booleans()), max_size=200))
def test_what_is_kept_is_bounded(found: list[tuple[str, bool]]) -> None:
    trust = AnnouncementTrust()
    for tenant, is_kept in found:
        seen(trust, KEPT if is_kept else BROKEN, tenant=tenant)
    compared = trust._compared.get(1, ())
    assert len(compared) <= COMPARED
    assert all([tenant for tenant, _ in compared].count(each) <= PER_TENANT for each in "abcdefghij")
