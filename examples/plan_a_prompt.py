"""Register one prompt, then plan which part of another prompt could reuse its KV. Needs no model, GPU or data."""

import sys

from sembase.compiled import HAS_COMPILER
from semblend import Decline, Namespace, Planner, ReusePlan, Settings

DOCUMENT = [(i * 7919) % 50_000 for i in range(2_000)]  # stands for a tokenized document
OLD_INSTRUCTION = list(range(100, 130))
NEW_INSTRUCTION = list(range(900, 975))
QUESTION = list(range(3_000, 3_020))


def describe(answer: ReusePlan | Decline) -> None:
    if isinstance(answer, Decline):
        print(f"declined: {answer.reason} {answer.detail}".rstrip())
        return
    for run in answer.runs:
        print(
            f"load    [{run.target_start}, {run.target_end}) from {run.donor_id} at {run.donor_start}, rotated by "
            f"{run.shift}; {run.risk.mean_share:.1%} of its context differs on average"
        )
    for gap in answer.compute:
        print(f"compute [{gap.start}, {gap.end})")
    print(f"left to the engine [{answer.claim_end}, {answer.prompt_tokens})")
    print(f"plan {answer.reused_tokens} of {answer.prompt_tokens} tokens ({answer.reuse_ratio:.1%})")


def main() -> None:
    if HAS_COMPILER:
        print("compiling the look-up kernels (about half a minute on the first run)", file=sys.stderr)
    tenant = Namespace(tenant="acme", model="smollm2-135m", tokenizer="smollm2", dtype="bfloat16", block_size=16)
    with Planner(settings=Settings(embedder="none")) as planner:
        planner.register("request-1", OLD_INSTRUCTION + DOCUMENT + QUESTION, tenant)

        print("the same document under a new instruction:")
        describe(planner.plan(NEW_INSTRUCTION + DOCUMENT + QUESTION, tenant))

        print("\nthe same document, one token edited:")
        edited = [*DOCUMENT[:900], 49_999, *DOCUMENT[901:]]
        describe(planner.plan(NEW_INSTRUCTION + edited + QUESTION, tenant))

        print("\nthe same text from another tenant:")
        other = Namespace(tenant="globex", model="smollm2-135m", tokenizer="smollm2", dtype="bfloat16", block_size=16)
        describe(planner.plan(NEW_INSTRUCTION + DOCUMENT + QUESTION, other))


if __name__ == "__main__":
    main()
