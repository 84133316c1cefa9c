"""The top of a page: whether the result is credible, whether it passed, and the few figures that decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sembase.onepage.formats import NOT_MEASURED, fraction, plural
from sembase.onepage.markup import Safe, tag
from sembase.onepage.section import Section, chip, tile
from sembench.must_be_zero import MUST_BE_ZERO
from sembench.report.cold import cold_in_words
from sembench.report.formats import nats, percent, ratio
from sembench.report.gate_table import GateRow, State, gate_rows
from sembench.report.headline import blended, end_to_end, reused_only
from sembench.report.recall import recall_of_both
from sembench.report.subject import Subject

_MAX_FAILURES: Final = 12
_STATES: Final[dict[State, tuple[str, str]]] = {
    "pass": ("pass", "good"),
    "fail": ("fail", "bad"),
    "missing": ("not measured", "warn"),
}


@dataclass(frozen=True, slots=True)
class Ruling:
    """``state`` colours it: good, bad or none."""

    word: str
    state: str
    sentence: str
    failures: tuple[str, ...]


def ruling_of(subject: Subject) -> Ruling:
    """A verdict file is not enough: a result that its own rows contradict fails, whatever the file says."""
    if subject.integrity:
        sentence = "The result reports figures that do not follow from its own rows."
        if any(" is missing," in failure for failure in subject.integrity):
            sentence += " Figures are missing: if another version of kvmend wrote it, run it again with this one."
        return Ruling("Not credible", "bad", sentence, tuple(subject.integrity))
    nonzero = tuple(_nonzero(subject))
    verdict = subject.verdict
    if verdict is None:
        if nonzero:
            return Ruling("Fail", "bad", "A figure that must be zero is not.", nonzero)
        sentence = (
            "No gate verdict was given (--gates). Aggregates follow from the rows; all figures that must be 0 are."
        )
        return Ruling("Not judged", "none", sentence, ())
    rows = gate_rows(verdict)
    failures = tuple(str(failure) for failure in verdict.get("failures") or ()) or nonzero
    if failures or verdict["passed"] is not True or any(row.state == "fail" for row in rows):
        return Ruling(
            "Fail", "bad", f"{plural(len(failures), 'failure')}, {plural(len(rows), 'gate')} judged.", failures
        )
    if not verdict.get("requested_gates"):
        sentence = "The checks that always run passed. No gate with a limit was requested, so nothing was judged."
        return Ruling("Not judged", "none", sentence, ())
    return Ruling("Pass", "good", _passed(rows), ())


def _passed(rows: Sequence[GateRow]) -> str:
    missing = sum(row.state == "missing" for row in rows)
    allowed = f" {missing:,} without a measurement were allowed to pass." if missing else ""
    return f"{len(rows) - missing:,} of {plural(len(rows), 'gate')} met.{allowed}"


def _nonzero(subject: Subject) -> list[str]:
    found = [(check, check.measure(subject.rows)) for check in MUST_BE_ZERO]
    return [
        f"{check.title}: {fraction(figure.numerator, figure.denominator)}, and must be zero"
        for check, figure in found
        if figure is not None and figure.value
    ]


def section(subject: Subject) -> Section:
    ruling = ruling_of(subject)
    shown = ruling.failures[:_MAX_FAILURES]
    more = len(ruling.failures) - len(shown)
    banner = tag(
        "div",
        tag("p", ruling.word, class_="word"),
        tag(
            "div",
            tag("p", "Do not use these figures." if subject.integrity else _headline(subject), class_="headline"),
            None if subject.integrity else _basis(subject),
            tag("p", ruling.sentence),
            tag("ul", *(tag("li", failure) for failure in shown)) if shown else None,
            tag("p", f"and {more:,} more") if more > 0 else None,
        ),
        class_=f"ruling {ruling.state}",
        role="status",
    )
    body = (banner, tag("dl", *_tiles(subject), class_="tiles"), *_gates(subject))
    return Section("verdict", "Verdict", "", body)


def _headline(subject: Subject) -> str:
    speed, only = blended(subject), reused_only(subject)
    if speed is None:
        eligible = percent(subject.aggregate.get("semantic_eligible_block_rate"))
        return f"TTFT {NOT_MEASURED}. Eligible by plan: {eligible} of all blocks. No backend confirmed reuse."
    blended_text = f"{speed.shown(ratio)} median TTFT speedup over {plural(speed.n, 'clean pair')}, misses included"
    if only is None:
        return f"{blended_text}."
    return f"{blended_text}; {only.shown(ratio)} over the {only.n:,} with confirmed reuse."


def _basis(subject: Subject) -> Safe | None:
    """What the headline is based on: excluded pairs, the time of the whole answer, and what cold means."""
    if not subject.pairs.attempted:
        return None
    basis = f"Clean: {len(subject.pairs.clean):,} of {plural(subject.pairs.attempted, 'pair')}."
    whole = end_to_end(subject)
    if whole is not None:
        basis += f" To the last token: {whole.shown(ratio)}, n = {whole.n:,}."
    return tag("p", f"{basis} {cold_in_words(subject.verdict)}")


def _gates(subject: Subject) -> tuple[Safe, ...]:
    if subject.verdict is None:
        return ()
    rows = gate_rows(subject.verdict)
    checked = [str(name) for name in subject.verdict.get("checked") or ()]
    always = tag("p", "Always on, and measured here: ", ", ".join(checked) or "nothing", ".", class_="note")
    if not rows:
        return (tag("div", tag("h3", "Gates"), tag("p", "None was asked for."), always, class_="card"),)
    head = tag("tr", tag("th", "gate"), tag("th", "wanted", class_="n"), tag("th", "found", class_="n"), tag("th", ""))
    whole = tag("table", tag("thead", head), tag("tbody", *(_gate(row) for row in rows)), class_="gates")
    return (tag("div", tag("h3", "Gates"), tag("div", whole, class_="scroll"), always, class_="card"),)


def _gate(row: GateRow) -> Safe:
    word, state = _STATES[row.state]
    return tag(
        "tr",
        tag("td", row.words, tag("small", row.name), class_="gate"),
        tag("td", row.wanted, class_="n", data_label="wanted"),
        tag("td", row.found, tag("small", row.basis) if row.basis else None, class_="n", data_label="found"),
        tag("td", chip(word, state), class_="n"),
    )


def _tiles(subject: Subject) -> list[Safe]:
    if subject.evidence == "offline":
        return [
            _rate_tile(subject, "Exact prefix", "exact_prefix_block_rate", "blocks"),
            _rate_tile(subject, "Seen before, anywhere", "any_position_token_rate", "tokens"),
            _rate_tile(subject, "Eligible (a plan)", "semantic_eligible_block_rate", "blocks"),
            _rate_tile(subject, "Confirmed reuse", "backend_confirmed_block_rate", "blocks"),
            _zero_tile(subject, "Negatives eligible", "negative_control_semantic_eligible_block_rate"),
        ]
    return [
        _speed_tile(subject),
        _rate_tile(subject, "Confirmed reuse", "backend_confirmed_block_rate", "blocks"),
        _rate_tile(subject, "Warm answers that pass", "quality_pass_rate", f"answers; {recall_of_both(subject)}"),
        _zero_tile(subject, "Negatives confirmed", "negative_control_backend_confirmed_rate"),
        _kl_tile(subject),
    ]


def _speed_tile(subject: Subject) -> Safe:
    speed, only = blended(subject), reused_only(subject)
    if speed is None:
        return tile("Blended TTFT speedup", NOT_MEASURED, "no clean pairs")
    interval = f"{speed.shown(ratio).partition(' ')[2]}, " if speed.low is not None else ""
    beside = f"reused only {ratio(only.value)}, n = {only.n:,}" if only else "no confirmed reuse"
    return tile("Blended TTFT speedup", ratio(speed.value), f"{interval}n = {speed.n:,}; {beside}")


def _rate_tile(subject: Subject, title: str, metric: str, unit: str, state: str = "") -> Safe:
    parts = subject.aggregate.get("parts", {}).get(metric) or {}
    counts = fraction(parts.get("numerator"), parts.get("denominator"))
    value = percent(subject.aggregate.get(metric))
    return tile(title, value, f"{counts} {unit}" if counts != NOT_MEASURED else "not reported", state)


def _zero_tile(subject: Subject, title: str, metric: str) -> Safe:
    value = subject.aggregate.get(metric)
    return _rate_tile(subject, title, metric, "blocks", "" if value is None else "bad" if value else "good")


def _kl_tile(subject: Subject) -> Safe:
    value, floor = subject.paired.get("warm_vs_cold_mean_kl_topk"), subject.noise_floor.mean_kl
    number = value if isinstance(value, int | float) else None
    against = f"noise floor {nats(floor)}" if floor is not None else "noise floor not measured"
    pairs = subject.paired.get("warm_vs_cold_kl_n")
    beside = f"n = {pairs:,}; " if isinstance(pairs, int) and number is not None else ""
    return tile("Mean KL, warm to cold", nats(number), beside + against)
