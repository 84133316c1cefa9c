"""Donors of one tenant must never be planned for another one, and requests without a tenant form a tenant of their
own.
"""

from __future__ import annotations

from benchmarks.corpus import Tokens
from benchmarks.discovery.library import Library
from benchmarks.targets import Verdict
from semblend import Namespace, Planner, ReusePlan

ALPHA = Namespace(tenant="alpha", model="benchmark")
BETA = Namespace(tenant="beta", model="benchmark")
NO_TENANT = Namespace(tenant=None, model="benchmark")
OTHER_MODEL = Namespace(tenant="alpha", model="another")
TOKENS = 2_000


def tenant_verdicts(planner: Planner, library: Library, count: int) -> list[Verdict]:
    """The library is alpha's. Unseen text becomes donors without a tenant, which alpha and beta must not see."""
    alphas = [donor.tokens for donor in library.donors[:count]]
    pieces = _pieces(library.unseen, count)
    for number, tokens in enumerate(pieces):
        planner.register(f"nobody/{number}", tokens, NO_TENANT)
    verdicts = [
        Verdict("alpha's donors planned for beta", "==", 0, _plans(planner, alphas, BETA), is_law=True),
        Verdict("alpha's donors planned for tenant None", "==", 0, _plans(planner, alphas, NO_TENANT), is_law=True),
        Verdict("alpha's donors planned for another model", "==", 0, _plans(planner, alphas, OTHER_MODEL), is_law=True),
        Verdict("tenant None's donors planned for alpha", "==", 0, _plans(planner, pieces, ALPHA), is_law=True),
        Verdict("tenant None's donors planned for beta", "==", 0, _plans(planner, pieces, BETA), is_law=True),
        Verdict("control: alpha's for alpha", "==", len(alphas), _plans(planner, alphas, ALPHA), is_law=True),
        Verdict("control: None's for None", "==", len(pieces), _plans(planner, pieces, NO_TENANT), is_law=True),
    ]
    for number in range(len(pieces)):
        planner.forget(f"nobody/{number}")
    verdicts.append(Verdict("forgotten donors planned", "==", 0, _plans(planner, pieces, NO_TENANT), is_law=True))
    return verdicts


def _plans(planner: Planner, prompts: list[Tokens], namespace: Namespace) -> int:
    return sum(isinstance(planner.plan(tokens, namespace), ReusePlan) for tokens in prompts)


def _pieces(text: Tokens, count: int) -> list[Tokens]:
    return [text[at : at + TOKENS] for at in range(0, min(text.size - TOKENS, count * TOKENS), TOKENS)]
