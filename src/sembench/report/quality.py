"""Section: the effect of reuse on answers. KL against the noise floor, F1 of both arms, and answers that flipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sembase.onepage.chart import Chart, Curve, DataTable, Rule
from sembase.onepage.formats import NOT_MEASURED, count, fraction, plural
from sembase.onepage.markup import Safe
from sembase.onepage.section import Section, card, columns, figure, missing, table
from sembase.onepage.ticks import linear_axis, log_axis
from sembench.report.formats import nats, percent, score, shortened, tick_nats, tick_share
from sembench.report.latency import MARKS, dots_by_kind
from sembench.report.pairs import KIND_NAMES, Kind, Pair
from sembench.report.recall import recall_of_both
from sembench.report.subject import Subject

_MIN_KL: Final = 1e-6  # lower end of the axis; a KL of zero is drawn here because the axis is logarithmic
_MAX_FLIPS: Final = 20
_TEXT: Final = 220


def section(subject: Subject) -> Section:
    clean = subject.pairs.clean
    charts = [chart for chart in (_kl(subject), _f1(clean)) if chart is not None]
    cards: list[Safe] = [figure(chart, subject.prefix) for chart in charts]
    keys = {chart.key for chart in charts}
    if "kl" not in keys:
        cards.append(missing("Divergence of the answers (KL)", "No log-probabilities: run with --capture-logprobs."))
    if "f1" not in keys:
        cards.append(missing("F1, cold against warm", "No pair has both answers scored against a reference."))
    return Section("quality", "Quality", _lead(subject), (columns(*cards), _flips(clean)), tuple(charts))


def _lead(subject: Subject) -> str:
    parts = subject.aggregate.get("parts", {}).get("quality_pass_rate") or {}
    rate = percent(subject.aggregate.get("quality_pass_rate"))
    counts = fraction(parts.get("numerator"), parts.get("denominator"))
    basis = "" if counts == NOT_MEASURED else f"{counts}; "
    passed = f"Warm answers that pass: {rate} ({basis}{recall_of_both(subject)})."
    flips = [p.row.pair.answer_flip for p in subject.pairs.clean if p.row.pair and p.row.pair.answer_flip is not None]
    flipped = f"{sum(flips):,} of {plural(len(flips), 'pair')}" if flips else NOT_MEASURED
    floor = f"{nats(subject.noise_floor.mean_kl)} nats" if subject.noise_floor.mean_kl is not None else NOT_MEASURED
    different = subject.noise_floor.different_settings(subject.result["config"])
    other = (
        f" It does not apply to this run: it was calibrated with other settings ({'; '.join(different)})."
        if different
        else ""
    )
    return (
        f"{passed} Answers that changed between arms: {flipped}. Noise floor (two cold runs, mean KL): {floor}.{other}"
    )


def _kl(subject: Subject) -> Chart | None:
    measured = {p.row.item_id: p for p in subject.pairs.clean if p.row.pair and p.row.pair.mean_kl is not None}
    if not measured:
        return None
    kl = {item: pair.row.pair.mean_kl or 0.0 for item, pair in measured.items() if pair.row.pair is not None}
    shares = {item: _reused_share(pair) for item, pair in measured.items()}
    floor = subject.noise_floor.mean_kl
    drawn = {item: max(value, _MIN_KL) for item, value in kl.items()}
    pairs = list(measured.values())
    limits = [_MIN_KL, 1.4 * max((*drawn.values(), floor or 0.0))]
    values = list(kl.values())
    mean, worst = sum(values) / len(values), max(values)
    rows = tuple(_kl_row(kind, [kl[p.row.item_id] for p in pairs if p.kind == kind]) for kind in MARKS)
    return Chart(
        "kl",
        "Divergence of the answers (KL)",
        f"Mean KL {nats(mean)} nats, worst pair {nats(worst)}, over {plural(len(values), 'pair')}.",
        linear_axis("fraction of the prompt reused", 0.0, 1.0, tick_share, 4),
        log_axis("mean KL(cold ‖ warm), nats (log)", limits, _kl_tick, pad=1.0),
        (
            *(
                [Rule(max(floor, _MIN_KL), f"noise floor {nats(floor)}", tone="bad", dashed=True)]
                if floor is not None
                else []
            ),
            *dots_by_kind(pairs, shares, drawn),
        ),
        DataTable(("pairs", "n", "mean KL", "worst KL"), tuple(row for row in rows if row[1] != "0")),
        ("" if floor is not None else "Noise floor not measured: pass --noise-floor. ")
        + "Pairs without an engine report are drawn at 0 %. A KL of 0 is drawn at the bottom.",
    )


def _kl_tick(value: float) -> str:
    return "0" if value <= _MIN_KL * 1.01 else tick_nats(value)


def _reused_share(pair: Pair) -> float:
    backend = pair.row.backend
    return (backend.reused_tokens or 0) / pair.row.prompt_tokens if backend and pair.row.prompt_tokens else 0.0


def _kl_row(kind: Kind, values: Sequence[float]) -> tuple[str, ...]:
    if not values:
        return KIND_NAMES[kind], "0", NOT_MEASURED, NOT_MEASURED
    return KIND_NAMES[kind], count(len(values)), nats(sum(values) / len(values)), nats(max(values))


def _f1(clean: Sequence[Pair]) -> Chart | None:
    cold = {p.row.item_id: p.row.cold.f1 for p in clean if p.row.cold and p.row.cold.f1 is not None}
    warm = {p.row.item_id: p.row.warm.f1 for p in clean if p.row.warm and p.row.warm.f1 is not None}
    both = [pair for pair in clean if pair.row.item_id in cold and pair.row.item_id in warm]
    if not both:
        return None
    worse = sum(warm[p.row.item_id] < cold[p.row.item_id] for p in both)
    better = sum(warm[p.row.item_id] > cold[p.row.item_id] for p in both)
    rows = []
    for kind in MARKS:
        items = [pair.row.item_id for pair in both if pair.kind == kind]
        if items:
            means = [sum(arm[item] for item in items) / len(items) for arm in (cold, warm)]
            rows.append((KIND_NAMES[kind], count(len(items)), *(score(mean) for mean in means)))
    axes = [linear_axis(f"F1 of the {arm} answer", 0.0, 1.0, lambda v: f"{v:g}", 4) for arm in ("cold", "warm")]
    return Chart(
        "f1",
        "F1, cold against warm",
        f"Warm lower in {worse:,}, higher in {better:,}, equal in {len(both) - worse - better:,} pairs.",
        axes[0],
        axes[1],
        (Curve("", "muted", ((0.0, 0.0), (1.0, 1.0)), dashed=True), *dots_by_kind(both, cold, warm)),
        DataTable(("pairs", "n", "cold mean F1", "warm mean F1"), tuple(rows)),
        "On the line both arms are equal; below it the warm answer is worse.",
    )


def _flips(clean: Sequence[Pair]) -> Safe:
    known = [pair for pair in clean if pair.row.pair and pair.row.pair.answer_flip is not None]
    flipped = [pair for pair in known if pair.row.pair and pair.row.pair.answer_flip]
    if not known:
        return missing("Answers that changed", "Answers were not scored in both arms.")
    if not flipped:
        return card("Answers that changed", f"None of {plural(len(known), 'pair')}.")
    rows = tuple(
        (
            pair.row.item_id,
            pair.row.transform,
            KIND_NAMES[pair.kind],
            _text(pair.row.cold.text if pair.row.cold else None),
            _text(pair.row.warm.text if pair.row.warm else None),
        )
        for pair in flipped[:_MAX_FLIPS]
    )
    more = f" The first {_MAX_FLIPS} are shown." if len(flipped) > _MAX_FLIPS else ""
    shown = table(
        DataTable(("item", "transform", "backend", "cold answer", "warm answer"), rows),
        text_columns=range(5),
        kind="texts",
    )
    return card("Answers that changed", f"{len(flipped):,} of {plural(len(known), 'pair')}.{more}", shown)


def _text(text: str | None) -> str:
    return NOT_MEASURED if text is None else shortened(text, _TEXT) or "(empty)"
