"""Any selection policy at any budget on the real engine, over the fixed set: fidelity, cost, the Pareto front.

``python -m benchmarks.fidelity [ARM ...]`` with arms such as ``question@0.2``. The engine runs in a process of its own
environment. Rows are appended as they come, so an interrupted run keeps its results: ``--report`` shows them,
``--resume`` continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from scripts.models.known import MODELS, SMOLLM2

from benchmarks.console import RESULTS, exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.fidelity.arm import DEFAULT
from benchmarks.fidelity.engine_process import run_inside
from benchmarks.fidelity.figures import Answers, Figures, answers_of, declined_of, figures_of, read_rows
from benchmarks.fidelity.picture import draw
from benchmarks.targets import Verdict

STANDARD = (
    *("default", "first@0", "first@0.05", "first@0.15", "first@1"),
    *("question@0.02", "question@0.05", "question@0.1", "question@0.15", "question@0.3"),
)
# Issue 8. One policy chosen in advance has to reach them all: the best of many arms per case could be chance.
CANDIDATE = "question"
TARGETS = (("composition", 0.2, 0.03), ("reorder", 0.2, 0.015), ("new instruction", 0.08, 0.005))
ANSWERABLE = 100  # minimum number of items the cold model answers right, to judge lost answers
SERVED_LIMIT = 0.02  # mean KL of any class served with default settings


def main() -> int:
    arguments, passed = _parse()
    rows_path = RESULTS / f"{arguments.name}-rows.jsonl"
    if not arguments.report:
        RESULTS.mkdir(exist_ok=True)
        if not arguments.resume:
            rows_path.unlink(missing_ok=True)
        inside = [
            "--model",
            arguments.model,
            "--dtype",
            arguments.dtype,
            "--out",
            str(rows_path),
            *passed,
            "--",
            *(arguments.arms or STANDARD),
        ]
        if (code := run_inside("benchmarks.fidelity.inside", inside, arguments.threads)) != 0:
            return code
    rows = read_rows([rows_path])
    figures = figures_of(rows)
    _show(figures)
    served = _served(figures, declined_of(rows))
    show_table(f"at {DEFAULT} settings", ("case", "served", "declined", "mean KL of served"), served)
    answers = answers_of(rows)
    show_table("answers", ("arm", "case, source", "answers"), [(one.arm, one.group, one.shown()) for one in answers])
    for path in draw(figures, RESULTS / f"{arguments.name}.png"):
        progress(f"drawn: {path.name} in {RESULTS.name}/")
    verdicts = [*target_verdicts(figures), answer_verdict(answers)]
    show_verdicts(verdicts)
    shown = {"figures": [one.as_record() for one in figures], "answers": [asdict(one) for one in answers]}
    write_results(arguments.name, shown)
    return exit_code(verdicts, arguments.enforce)


def _parse() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=__doc__)
    parser.add_argument("arms", nargs="*", help=f"policy@fraction[+bridge] (default: {' '.join(STANDARD)})")
    parser.add_argument("--report", action="store_true", help="show the rows of the last run of that name")
    parser.add_argument("--resume", action="store_true", help="continue a run of that name: skip what has rows")
    parser.add_argument("--enforce", action="store_true", help="missed targets fail the run")
    parser.add_argument("--name", default="fidelity", help="name of the files in results/")
    parser.add_argument("--model", choices=MODELS, default=SMOLLM2.name, help="default: %(default)s")
    parser.add_argument("--size", default="1K", help="prompt size: 1K, 2K, 4K, 8K")
    parser.add_argument("--cases", action="append", help="a case; may be given more than once")
    parser.add_argument("--most", type=int, default=99, help="items per case and source")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first items per case and source")
    parser.add_argument("--needles", type=int, default=8, help="needles per case that has them")
    parser.add_argument("--facts", type=int, default=0, help="plain facts per case that has them")
    parser.add_argument("--sources", action="append", help="a source; may be given more than once")
    parser.add_argument("--times", type=int, default=3, help="items per case whose cold prefill is timed")
    parser.add_argument("--dtype", default="auto", help="of the engine; float32 where bfloat16 is only emulated")
    parser.add_argument(
        "--threads",
        type=int,
        default=2,
        help="threads of the engine; use 1 on a busy machine, because idle threads spin",
    )
    arguments = parser.parse_args()
    passed = ["--size", arguments.size, "--most", str(arguments.most), "--times", str(arguments.times)]
    passed += ["--needles", str(arguments.needles), "--skip", str(arguments.skip), "--facts", str(arguments.facts)]
    if arguments.cases:
        passed += ["--cases", *arguments.cases]
    if arguments.sources:
        passed += ["--sources", *arguments.sources]
    return arguments, passed


_COLUMNS = (
    *("arm", "items", "KL, its answer", "same answer", "KL, given text", "p95", "worst", "by source", "PPL ratio"),
    *("top-1", "flips", "computed", "with probes", "groups", "TTFT x"),
)


def _show(figures: Sequence[Figures]) -> None:
    for case in dict.fromkeys(one.case for one in figures):
        show_table(case, _COLUMNS, [_line(one) for one in figures if one.case == case])


def _line(one: Figures) -> tuple[object, ...]:
    sources = " ".join(f"{name[:4]} {value:.3f}" for name, value in one.kl_sources.items())
    return (
        one.arm,
        one.items,
        one.answer_kl.shown("{:.4f}"),
        f"{one.kept} of {one.items}",
        one.kl_mean.shown("{:.4f}"),
        f"{one.kl_p95:.3f}",
        f"{one.kl_worst:.2f}",
        sources,
        one.ppl_ratio.shown("{:.2f}"),
        one.top1.shown("{:.2f}"),
        f"{one.flips} of {one.answerable}" + _between(one.flips_interval),
        None if one.computed_share is None else f"{one.computed_share:.1%}",
        None if one.whole_share is None else f"{one.whole_share:.1%}",
        None if one.groups is None else f"{one.groups:.0f}",
        None if one.ttft_ratio is None else one.ttft_ratio.shown("{:.1f}"),
    )


def _between(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" ({interval[0]:.1%} to {interval[1]:.1%})"


def _served(figures: Sequence[Figures], declined: dict[tuple[str, str], int]) -> list[tuple[object, ...]]:
    served = {one.case: one for one in figures if one.arm == DEFAULT and one.case != "all"}
    cases = [*served, *(case for arm, case in declined if arm == DEFAULT and case not in served)]
    return [
        (
            case,
            one.items if (one := served.get(case)) else 0,
            declined.get((DEFAULT, case), 0),
            one.kl_mean.shown("{:.4f}") if one else None,
        )
        for case in cases
    ]


def _is_candidate(arm: str) -> bool:
    return arm.partition("@")[0] == CANDIDATE


def target_verdicts(figures: Sequence[Figures]) -> list[Verdict]:
    """The largest allowed fraction counts.

    Each target is checked along the model's own answer and along a given text, by what is computed into the claim and
    by everything computed, including probes.
    """
    made = []
    for case, share, limit in TARGETS:
        arms = [one for one in figures if one.case == case and _is_candidate(one.arm)]
        for text, measured in (
            ("its answer", [one.answer_kl.estimate for one in arms]),
            ("a given text", [one.kl_mean.estimate for one in arms]),
        ):
            for suffix, costs in (
                ("", [one.computed_share for one in arms]),
                (", probes included", [one.whole_share for one in arms]),
            ):
                found = [(cost, kl) for cost, kl in zip(costs, measured, strict=True) if cost is not None]
                within = max((pair for pair in found if pair[0] <= share), default=None)
                name = f"{case}: mean KL along {text}, {CANDIDATE} at <= {share:.0%}{suffix}"
                made.append(Verdict(name, "<=", limit, within[1] if within else None))
    served = [one.kl_mean.estimate for one in figures if one.arm == DEFAULT and one.case != "all"]
    name = "worst class served at default settings: mean KL along a given text"
    made.append(Verdict(name, "<=", SERVED_LIMIT, max(served, default=None)))
    return made


def answer_verdict(answers: Sequence[Answers]) -> Verdict:
    """With fewer answerable items than required there is no verdict."""
    whole = next((one for one in answers if one.arm == DEFAULT and one.group == "all"), None)
    enough = whole is not None and whole.answerable >= ANSWERABLE
    name = f"{DEFAULT} settings: answers lost beyond the floor, of >= {ANSWERABLE}"
    return Verdict(name, "<=", 0, whole.beyond if whole and enough else None)


if __name__ == "__main__":
    raise SystemExit(main())
