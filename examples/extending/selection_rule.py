"""A selection rule of your own: which reused tokens are recomputed. Here those whose context changed most.

``"recompute_policy": "changed_context"`` finds it by the entry point ``changed_context = "my_package:RULE"`` in the
group ``semblend.selection``, in the engine's environment.
"""

from semblend import Namespace, Planner, ReusePlan, Settings
from semblend.plan.selection import POLICIES, Evidence, Policy, Selection, as_ranges, choose, evidence_of

RULE = Policy(score=lambda evidence: evidence.context_share)
POLICIES.register("changed_context", RULE)

document = [(i * 7919) % 50_000 for i in range(2_000)]
acme = Namespace(tenant="acme", model="my-model")
with Planner(settings=Settings(embedder="none")) as planner:
    planner.register("request-1", [1, 2, 3, *document], acme)
    answer = planner.plan([*range(100, 175), *document, 7, 8, 9], acme)
if not isinstance(answer, ReusePlan):
    raise SystemExit(f"declined: {answer.reason}")
evidence: Evidence = evidence_of(answer.runs)
for rule in ("first", "changed_context"):
    print(rule, as_ranges(choose(Selection(rule, 0.05), evidence)))
