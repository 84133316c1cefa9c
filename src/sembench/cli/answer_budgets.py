"""``kvmend bench answer-budgets``: how much must be recomputed for this model's answers to stay right, by class."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode
from sembase.errors import ConfigurationError
from sembase.streams import write_err, write_out
from sembase.values import count, fraction, positive, whole
from sembench.cli.live_arguments import add_header_argument, add_patience_arguments
from sembench.cli.output import require_writable
from sembench.console import Table, show
from sembench.console.table import NOT_MEASURED, percent
from sembench.http.request import PATHS
from sembench.live.answer_budgets import (
    FRACTIONS,
    ITEMS,
    LENGTHS,
    SHORT_TOKENS,
    BudgetRun,
    NothingMeasuredError,
    NothingReusedError,
    measure,
)
from sembench.live.item_trials import ItemTrials
from sembench.live.run import InterruptedRunError, run_interruptibly
from sembench.report.estimates import wilson
from semblend.contract import PlanShape
from semblend.contract.answer_budgets import FILE_NAME, MAX_ANSWER_LOSS, MIN_RIGHT, AnswerBudgets

NAME: Final = "answer-budgets"
SUMMARY: Final = (
    "Measure how much must be recomputed to keep a model's answers, per class, and write what servers read."
)
_TIMEOUT_S: Final = 900.0
_ALL_REUSED: Final = {"max_context_share": 1.0, "refresh_on_repeat": False}
SERVER_OPTIONS: Final[Mapping[str, Mapping[str, object]]] = {
    "vllm": {**_ALL_REUSED, "prefill_passages": False},
    "sglang": _ALL_REUSED,
}
"""What a server is started with to be measured, by engine."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--gateway-url", required=True, metavar="URL", help="the server's address")
    command.add_argument(
        "--model-dir",
        type=Path,
        metavar="DIR",
        help=f"folder of the model that it serves: the file is written there as {FILE_NAME}, where a server finds it",
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="the file to write, if not in --model-dir")
    command.add_argument("--model", metavar="NAME", help="model to request (default: the first one the server lists)")
    command.add_argument(
        "--classes",
        choices=[shape.value for shape in PlanShape],
        nargs="+",
        default=[shape.value for shape in PlanShape],
        metavar="CLASS",
        help=f"measure these alone ({', '.join(PlanShape)}; default: all); of the others, what the file says is kept",
    )
    command.add_argument(
        "--items",
        type=whole(MIN_RIGHT),
        default=ITEMS,
        metavar="N",
        help=f"questions per class, of which {MIN_RIGHT} must be right without reuse (default: {ITEMS})",
    )
    command.add_argument(
        "--lengths",
        type=whole(SHORT_TOKENS + 1),
        nargs="+",
        default=list(LENGTHS),
        metavar="N",
        help="tokens of the prompts with passages in another place, rising; longer prompts are not served by these "
        f"budgets (default: {' '.join(map(str, LENGTHS))})",
    )
    command.add_argument(
        "--fractions",
        type=fraction,
        nargs="+",
        default=list(FRACTIONS),
        metavar="F",
        help=f"fractions to recompute, rising (default: {' '.join(f'{each:g}' for each in FRACTIONS)})",
    )
    command.add_argument(
        "--endpoint",
        choices=tuple(PATHS),
        default="completions",
        help="API to use (default: completions; SGLang: sglang_generate)",
    )
    command.add_argument(
        "--max-tokens", type=positive, default=8, metavar="N", help="maximum tokens of an answer (default: 8)"
    )
    command.add_argument("--keep-rows", type=Path, metavar="FILE", help="write every item's answers here")
    command.add_argument("--seed", type=count, default=0, metavar="N", help="seed of the made-up texts (default: 0)")
    add_header_argument(command)
    add_patience_arguments(command, _TIMEOUT_S)


def execute(options: argparse.Namespace) -> ExitCode:
    if options.output is None and options.model_dir is None:
        raise ConfigurationError("name the folder of the model with --model-dir, or a file with --output")
    output = options.output or options.model_dir / FILE_NAME
    for written in filter(None, (output, options.keep_rows)):
        require_writable(written)
    run = BudgetRun(
        base_url=options.gateway_url,
        output=output,
        model_dir=options.model_dir,
        model=options.model,
        classes=tuple(shape for shape in PlanShape if shape.value in options.classes),
        fractions=tuple(options.fractions),
        items=options.items,
        lengths=tuple(options.lengths),
        endpoint=options.endpoint,
        max_tokens=options.max_tokens,
        headers=tuple(options.header),
        timeout_s=options.timeout_seconds,
        ready_s=options.ready_seconds,
        warm_up=options.warm_up,
        seed=options.seed,
        resume=options.resume,
    )
    try:
        measured = run_interruptibly(measure(run))
    except InterruptedRunError as error:
        write_err(f"\nsembench: interrupted ({error}); run the same {NAME} with --resume to continue\n")
        return ExitCode.INTERRUPTED
    except NothingReusedError as error:
        raise ConfigurationError(
            f"{error}; start the server with {json.dumps(SERVER_OPTIONS[run.engine])}, then run again with --resume"
        ) from None
    except NothingMeasuredError as error:
        write_out(_left_out(error.rows))
        write_err(f"sembench: {error}\n")
        return ExitCode.GATE_FAILED
    if options.keep_rows is not None:
        lines = [json.dumps(row.to_json(), sort_keys=True) for row in measured.rows]
        options.keep_rows.write_text("\n".join(lines) + "\n", encoding="utf-8")
    show(table(measured.budgets))
    write_out(_left_out(measured.rows))
    write_out(f"answer budgets: {output}\n")
    if options.output is not None:
        write_out(f'option of the connector that reads them: {{"answer_budgets": "{output.resolve()}"}}\n')
    return ExitCode.OK


def table(budgets: AnswerBudgets) -> Table:
    rows = []
    for one in budgets.budgets:
        chosen = one.smallest(MAX_ANSWER_LOSS)
        for trial in one.trials:
            upper = wilson(trial.lost, trial.items)
            rows.append(
                (
                    one.shape.value,
                    f"{one.up_to_tokens:,}",
                    f"{trial.fraction:g}",
                    f"{trial.right} of {trial.items}",
                    str(trial.lost),
                    str(trial.gained),
                    percent(trial.likely_loss),
                    NOT_MEASURED if upper is None else percent(upper.high),
                    NOT_MEASURED if trial.speedup is None else f"{trial.speedup:.1f}",
                    "" if trial is not chosen else "this one",
                )
            )
    columns = (
        *("class", "up to tokens", "recomputed", "right cold", "lost", "gained", "likely loss", "lost at most"),
        *("cold / ours", f"at {MAX_ANSWER_LOSS:g}"),
    )
    notes = (
        "lost: right cold answers that were wrong with reuse; gained: the other way round.",
        "likely loss: upper end of the difference, which is larger with a chance of one in four.",
        "lost at most: upper end of the 95 % interval of lost ones.",
    )
    return Table(f"Answer budgets of {budgets.model}", columns, tuple(rows), notes)


def _left_out(rows: Sequence[ItemTrials]) -> str:
    """Items that count for no class, by transform and reason."""
    reasons = Counter((row.transform, _reason(row)) for row in rows)
    return "".join(f"{number} of {name}: {why}\n" for (name, why), number in sorted(reasons.items()) if why)


def _reason(row: ItemTrials) -> str:
    if row.why is not None:
        return row.why
    if row.measured_shape is None:
        return f"served as {row.shape} with {row.moved_runs} moved passages, which is another class for the gates"
    return "" if row.is_steady else "answered otherwise by a second cold run"
