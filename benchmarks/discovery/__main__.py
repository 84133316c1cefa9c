"""Does the planner find all there is to reuse among thousands of real donors, and nothing else? No model is used.

Laws (a broken one fails the run): every run of 64 tokens or more that a brute-force oracle finds is planned, no planned
token differs from the donor's, unrelated prompts get no plan, no tenant sees another's donors.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.console import exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.corpus import TOKENIZER, Corpus, CorpusUnavailableError, load_corpus
from benchmarks.discovery.cases import CASES, NEGATIVE_CASES, CaseMaker
from benchmarks.discovery.codec import Codec, TokenizerCodec, WordCodec, made_up_corpus
from benchmarks.discovery.judge import CaseScore, Judge
from benchmarks.discovery.library import Library, build_library
from benchmarks.discovery.tenants import ALPHA, tenant_verdicts
from benchmarks.documents import DEFAULT_TEXTS
from benchmarks.targets import Spread, Verdict
from semblend import Gates, Planner, Settings

SIZES: dict[int, int | None] = {2_048: None, 8_192: 400, 32_768: 120}
QUICK_SIZES: dict[int, int | None] = {2_048: 400, 8_192: 30}
BUDGET_BYTES = 4 << 30


def main() -> int:
    arguments = _parse()
    corpus, codec = _corpus(arguments)
    library = build_library(corpus, codec, QUICK_SIZES if arguments.quick else SIZES, arguments.seed)
    tokens = sum(donor.tokens.size for donor in library.donors)
    progress(
        f"{len(library.donors):,} donors ({', '.join(f'{len(g):,} of {s:,}' for s, g in library.by_size.items())}), "
        f"{tokens:,} tokens; kept back {library.kept_back_documents} documents, of which {library.unseen_documents} "
        f"share no 64 tokens with a donor ({library.unseen.size:,} tokens)"
    )
    planner = _filled_planner(library)
    scores = _run_cases(planner, library, codec, arguments)
    verdicts = [*_verdicts(library, scores, arguments.quick), *tenant_verdicts(planner, library, arguments.queries)]
    _show(scores)
    show_verdicts(verdicts)
    record = {
        "quick": arguments.quick,
        "corpus": corpus.digest,
        "tokens_by_source": corpus.tokens_by_source(),
        "donors": {str(size): len(group) for size, group in library.by_size.items()},
        "donor_tokens": tokens,
        "scores": [score.as_record() for score in scores],
        "verdicts": [verdict.as_record() for verdict in verdicts],
    }
    path = write_results(arguments.name, record)
    progress(f"written: {path.name} in {path.parent.name}/")
    return exit_code(verdicts, arguments.enforce)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.discovery", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few donors and queries; same laws")
    parser.add_argument("--enforce", action="store_true", help="fail the run when a target is missed")
    parser.add_argument("--queries", type=int, help="per case and size (default 40; 6 with --quick)")
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the real texts")
    parser.add_argument(
        "--made-up", action="store_true", help="use made-up texts (the default of --quick without real ones)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="discovery", help="name of the file in results/")
    arguments = parser.parse_args()
    arguments.queries = arguments.queries or (6 if arguments.quick else 40)
    return arguments


def _corpus(arguments: argparse.Namespace) -> tuple[Corpus, Codec]:
    if not arguments.made_up:
        try:
            return load_corpus(arguments.texts), TokenizerCodec(TOKENIZER)
        except CorpusUnavailableError as unavailable:
            if not arguments.quick:
                raise SystemExit(f"{unavailable}; or try --made-up") from None
            progress(f"{unavailable}; using made-up texts instead")
    codec = WordCodec()
    return made_up_corpus(codec, *((60, 4_000) if arguments.quick else (900, 12_000))), codec


def _filled_planner(library: Library) -> Planner:
    """All gates open: the plan contains everything the planner found."""
    gates = Gates(min_run_tokens=64, min_reuse_ratio=0.0, boundary_recompute_tokens=0, max_context_share=1.0)
    planner = Planner(settings=Settings(embedder="none"), gates=gates, budget_bytes=BUDGET_BYTES)
    started = time.perf_counter()
    for donor in library.donors:
        planner.register(donor.donor_id, donor.tokens, ALPHA)
    progress(f"registered in {time.perf_counter() - started:.1f} s, {planner.memory_bytes() / 1e6:.0f} MB accounted")
    return planner


def _run_cases(planner: Planner, library: Library, codec: Codec, arguments: argparse.Namespace) -> list[CaseScore]:
    judge = Judge(planner, ALPHA, library.oracle, {donor.donor_id: donor.tokens for donor in library.donors})
    scores: list[CaseScore] = []
    for size in library.by_size:
        maker = CaseMaker(library, codec, size, arguments.seed)
        for case in CASES:
            score = CaseScore(case, size)
            for _ in range(arguments.queries):
                judge.score(maker.make(case), score)
            scores.append(score)
        progress(f"{size:,}-token prompts checked")
    return scores


def _verdicts(library: Library, scores: list[CaseScore], quick: bool) -> list[Verdict]:
    positive = [score for score in scores if score.case not in NEGATIVE_CASES]
    recalls = [score.run_recall for score in positive if score.run_recall is not None]
    shares = [score.token_share for score in positive if score.token_share is not None]
    wrong = sum(score.wrong_tokens for score in scores)
    swapped = ("entities swapped", "numbers swapped", "negated")
    wrong_facts = sum(score.wrong_tokens for score in scores if score.case in swapped)
    unrelated = sum(score.plans for score in scores if score.case in NEGATIVE_CASES)
    verdicts = [
        Verdict("recall of the oracle's runs, worst case", "==", 1, min(recalls, default=None), is_law=True),
        Verdict("fraction of the oracle's tokens planned, worst case", ">=", 0.98, min(shares, default=None)),
        Verdict("planned tokens that differ, all cases", "==", 0, wrong, is_law=True),
        Verdict("planned tokens that differ, swapped and negated", "==", 0, wrong_facts, is_law=True),
        Verdict("plans for unrelated prompts", "==", 0, unrelated, is_law=True),
    ]
    return verdicts if quick else [Verdict("donors", ">=", 5_000, len(library.donors)), *verdicts]


def _show(scores: list[CaseScore]) -> None:
    rows = []
    for score in scores:
        spread = Spread.of(score.lookup_ms)
        rows.append(
            (
                score.case,
                f"{score.size:,}",
                f"{score.plans}/{score.recipients}",
                f"{score.oracle_runs:,}",
                None if score.run_recall is None else f"{score.run_recall:.4f}",
                f"{score.oracle_tokens:,}",
                None if score.token_share is None else f"{score.token_share:.4f}",
                score.planned_other_tokens,
                score.wrong_tokens,
                score.truncated,
                None if spread is None else f"{spread.p50:.2f}",
                None if spread is None else f"{spread.p99:.2f}",
            )
        )
    columns = ("case", "size", "plans", "oracle runs", "run recall", "oracle tokens", "tokens planned")
    tail = ("planned beyond oracle", "wrong tokens", "truncated", "p50 ms", "p99 ms")
    show_table("Discovery, no model", (*columns, *tail), rows)


if __name__ == "__main__":
    raise SystemExit(main())
