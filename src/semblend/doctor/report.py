"""The doctor's report: installation, model, verdicts and the command to use; as a table or as JSON."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from dataclasses import dataclass
from typing import Any, Final

from semblend.doctor.installation import Installation
from semblend.doctor.model_facts import ModelFacts
from semblend.doctor.serve_command import ServeCommand
from semblend.doctor.verdict import Checked, State, Verdict

SCHEMA: Final = "semblend.doctor.v1"
SELF_TEST: Final = (
    "The self-test on the loaded model runs when the server starts; its log then says `SemBlend is ready` or why not."
)
_LABEL: Final = 20
_WIDTH: Final = 118
SENTENCES: Final = {
    State.READY: "SemBlend will be enabled, if its self-test passes.",
    State.PREFIX_ONLY: "SemBlend will load prefixes only.",
    State.DISABLED: "SemBlend will be disabled; the engine prefills every request.",
    State.START_FAILS: "The server will not start.",
    State.UNCHECKED: "Not checked.",
}


@dataclass(frozen=True, slots=True)
class Report:
    """``given``: the user's command line. ``proposed``: the same with our flags; None if they are the same."""

    installation: Installation
    command: ServeCommand | None = None
    model: ModelFacts | None = None
    given: Checked | None = None
    proposed_command: ServeCommand | None = None
    proposed: Checked | None = None
    missing: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict that counts: on the proposed command if there is one, else on the given."""
        checked = self.proposed or self.given
        return checked.verdict if checked is not None else Verdict(State.UNCHECKED)


def as_json(report: Report) -> str:
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "installation": dataclasses.asdict(report.installation),
        "engine": report.command.engine if report.command else None,
        "model": dataclasses.asdict(report.model) if report.model else None,
        "given": _record(report.command, report.given),
        "proposed": _record(report.proposed_command, report.proposed),
        "verdict": dataclasses.asdict(report.verdict),
        "missing": list(report.missing),
        "self_test": SELF_TEST,
    }
    return json.dumps(record, indent=2, sort_keys=True) + "\n"


def as_table(report: Report) -> str:
    installed = report.installation
    lines = [_row("kvmend", f"{installed.semblend}, Python {installed.python}")]
    for engine in installed.engines:
        lines.append(_row(engine.name, f"{engine.version}, {'verified' if engine.verified else 'not verified'}"))
    if installed.libraries:
        lines.append(_row("libraries", ", ".join(f"{name} {found}" for name, found in installed.libraries.items())))
    checked = report.proposed or report.given
    if checked is not None and checked.platform:
        lines.append(_row("platform", checked.platform))
    if report.model is not None:
        layers = f", {report.model.layers} layers" if report.model.layers else ""
        lines += [
            _row("model", report.model.path),
            _row("architecture", f"{report.model.architecture}{layers}"),
            _row("RoPE", report.model.rope),
            _row("attention", report.model.attention),
        ]
    if checked is not None:
        lines += [_row(name, value) for name, value in checked.facts.items()]
    lines += [_row("missing", text) for text in report.missing]
    if report.given is not None and report.command is not None:
        title = "kvmend serve" if report.command.launched else "as given"
        lines += ["", *_verdict(title, report.command, report.given)]
    if report.proposed is not None and report.proposed_command is not None:
        lines += ["", *_verdict("with SemBlend", report.proposed_command, report.proposed)]
    if report.verdict.state is State.READY:
        lines += ["", SELF_TEST]
    return "\n".join([*lines, "", _last_line(report)]) + "\n"


def _last_line(report: Report) -> str:
    verdict = report.verdict
    if verdict.state is State.READY:
        return "verdict: ready"
    if report.missing:
        engine = report.command.engine if report.command else "an engine"
        return f"verdict: not ready: {engine} is not installed in this environment"
    if verdict.state is State.UNCHECKED:
        return "verdict: not checked: name a model with --engine and --model"
    return f"verdict: not ready: {verdict.reason or SENTENCES[verdict.state]}"


def _record(command: ServeCommand | None, checked: Checked | None) -> dict[str, Any] | None:
    if command is None:
        return None
    verdict = checked.verdict if checked is not None else Verdict(State.UNCHECKED)
    return {
        "command": command.text,
        "flags": list(command.flags),
        "platform": checked.platform if checked else "",
        "facts": checked.facts if checked else {},
        **dataclasses.asdict(verdict),
    }


def _verdict(title: str, command: ServeCommand, checked: Checked) -> list[str]:
    verdict = checked.verdict
    lines = [_row(title, SENTENCES[verdict.state])]
    if verdict.reason:
        lines.append(_row("  reason", verdict.reason))
    lines += [_row("  note", note) for note in verdict.notes]
    return [*lines, _row("  command", command.text, wrap=False)]


def _row(label: str, text: str, *, wrap: bool = True) -> str:
    if not wrap:
        return f"{label:<{_LABEL}}{text}"
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=f"{label:<{_LABEL}}",
        subsequent_indent=" " * _LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )
