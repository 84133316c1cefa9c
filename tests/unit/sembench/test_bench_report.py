"""The page itself: what it says, what it refuses to say, and that nothing hostile gets through."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from sembase.errors import ConfigurationError, ContractError, MissingDependencyError
from sembase.onepage.formats import MINUS
from sembench.cli.main import main
from sembench.metrics.rows import ArmRow, BackendRow, PairRow, PlanRow, RequestRow
from sembench.replay.offline import OfflineRun, run_offline
from sembench.replay.session import ReplayConfig
from sembench.report.build import Sources, build_page
from sembench.report.cold import COLD_IS_A_MISS
from sembench.report.formats import TIMES
from sembench.report.funnel import STAGES, funnel_of
from sembench.report.gate_table import gate_rows
from sembench.report.png import write_pngs
from sembench.report.subject import name_of
from sembench.result import RunFacts, assemble, write_result
from semblend.contract import Evidence

TRANSFORMS = {
    "exact_repeat": 0.97,
    "instruction_variant": 0.9,
    "rag_reorder": 0.7,
    "fuzzy_edit_5pct": 0.0,
    "negative_control": 0.0,
}
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e</title></style>\x00\ud800"
ALLOWED = re.compile(
    "html|head|meta|title|style|body|div|header|main|article|section|nav|footer|p|h1|h2|h3|a|b|small|span|strong|ul|ol|li|dl|"
    "dt|dd|table|caption|thead|tbody|tr|th|td|figure|figcaption|details|summary|code|svg|g|line|path|circle|"
    "rect|text|desc"
)


def live_rows(seed: int = 1, per_transform: int = 8, faster: float = 1.0, text: str = "The key.") -> list[RequestRow]:
    """Cold, warm, pair and backend filled as a paired run fills them; deterministic."""
    draw = random.Random(seed)
    rows = []
    for name, share in TRANSFORMS.items():
        for i in range(per_transform):
            tokens = 640 * 2 ** (i % 4) + 16 * i
            cold_ms = 0.1 * tokens * draw.uniform(0.95, 1.05)
            reused = int(share * tokens) // 16 * 16 if i else 0
            warm_ms = cold_ms * (1 - 0.9 * reused / tokens) * draw.uniform(0.95, 1.05) / faster
            item, negative = f"{name}-{i}", name == "negative_control"
            planned = int(share * tokens) // 16
            declined = None if reused else "no_candidate" if not share else "capacity"
            rows.append(
                RequestRow(
                    item_id=item,
                    dataset="musique_s",
                    source_id=f"s{i}",
                    transform=name,
                    negative_control=negative,
                    tenant="tenant-a",
                    stream_id=None,
                    prompt_tokens=tokens,
                    total_blocks=tokens // 16,
                    exact_hit_blocks=0,
                    exact_prefix_blocks=0,
                    exact_prefix_tokens=0,
                    any_position_tokens=planned * 16,
                    plan=PlanRow(
                        candidate_blocks=planned,
                        eligible_blocks=planned,
                        planned_tokens=planned * 16,
                        unverified_tokens=0,
                        runs=1,
                        donors=1,
                        discoveries=0,
                        decline_reason=None if planned else "no_candidate",
                        mean_context_share=None,
                        plan_ms=0.5,
                    ),
                    plan_beyond_prefix_tokens=planned * 16,
                    backend_confirmed_blocks=reused // 16,
                    quality_pass=i != 3,
                    cold=ArmRow(
                        request_id=f"cold.{item}",
                        status="ok",
                        ttft_ms=cold_ms,
                        total_ms=cold_ms + 90,
                        prompt_tokens=tokens,
                        completion_tokens=8,
                        cached_tokens=0,
                        contaminated=False,
                        text=text,
                        token_recall=1.0,
                        f1=0.8,
                        rouge_l=1.0,
                        exact_match=True,
                    ),
                    warm=ArmRow(
                        request_id=item,
                        status="ok",
                        ttft_ms=warm_ms,
                        total_ms=warm_ms + 90,
                        prompt_tokens=tokens,
                        completion_tokens=8,
                        cached_tokens=reused,
                        contaminated=None,
                        text=text,
                        token_recall=1.0,
                        f1=0.7,
                        rouge_l=1.0,
                        exact_match=True,
                    ),
                    pair=PairRow(
                        warm_first=i % 2 == 0,
                        mean_kl=0.01 * reused / tokens,
                        worst_kl=0.02,
                        compared_positions=8,
                        agreed_tokens=8,
                        answer_flip=i == 5,
                    ),
                    backend=BackendRow(
                        engine_request_id=item,
                        outcome="backend_materialized_reuse" if reused else "backend_declined_reuse",
                        found_tokens=reused,
                        advertised_tokens=reused,
                        boundary=0,
                        reused_tokens=reused,
                        computed_tokens=tokens - reused,
                        runs=1 if reused else 0,
                        decline_reason=declined,
                        faults=0,
                        load_ms=5.0 if reused else None,
                        compute_ms=20.0 if reused else None,
                        propagated_tokens=0,
                    ),
                )
            )
    return rows


def write_live(path: Path, rows: Sequence[RequestRow], **engine: Any) -> Path:
    facts = RunFacts(
        kind="live-gateway",
        evidence=Evidence.MEASURED_LIVE,
        manifest_name="m.jsonl",
        manifest_digest="ab" * 32,
        config={"block_size": 16},
        seed=3,
        engine={"name": "vllm", "version": "0.32", **engine},
    )
    write_result(path, assemble(facts, rows))
    return path


@pytest.fixture
def live(tmp_path: Path) -> Path:
    return write_live(tmp_path / "live.json", live_rows())


@pytest.fixture
def offline(tmp_path: Path, manifest: Path) -> Path:
    output = tmp_path / "offline.json"
    run_offline(OfflineRun(manifest=manifest, output=output, config=ReplayConfig()))
    return output


class Reader(HTMLParser):
    """Every start tag with its attributes, and the text outside the style sheet."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._in_style = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if not self._in_style:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def read(*results: Path, **more: Any) -> Reader:
    return Reader(build_page(Sources(tuple(results), **more)).html())


def judged(tmp_path: Path, result: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> Path:
    main(["assert-result-gates", "--result", str(result), *flags])
    path = tmp_path / "verdict.json"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


def test_hostile_names_answers_engines_and_errors_stay_text(tmp_path: Path) -> None:
    rows = [replace(row, dataset=HOSTILE[:-2], source_id="<b>", transform="<i onclick=x>") for row in live_rows()[:8]]
    rows = [replace(r, warm=replace(r.warm, text="<script>alert(2)</script>")) for r in rows if r.warm]
    result = write_live(tmp_path / "<svg onload=alert(3)>.json", rows, model="</style><script>alert(4)</script>")
    record = json.loads(result.read_text(encoding="utf-8"))
    record["run"]["note"] = HOSTILE
    result.write_text(json.dumps(record), encoding="utf-8")
    summary = tmp_path / "engine.json"
    summary.write_text(json.dumps({"engine": HOSTILE, "errors": [HOSTILE]}), encoding="utf-8")
    page = read(result, engine_summaries=(summary,), title=HOSTILE)
    assert {tag for tag, _ in page.tags if not ALLOWED.fullmatch(tag)} == set()
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "srcset")], tag
        assert (attributes.get("href") or "#").startswith("#")
    assert "<script>alert(2)</script>" in page.text
    assert "\u202e" not in page.text


def test_the_page_is_self_contained_and_its_policy_names_its_own_style(live: Path) -> None:
    page = build_page(Sources((live,))).html()
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policies = [a["content"] for tag, a in Reader(page).tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"]
    assert "http://" not in page
    assert "https://" not in page
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_every_drawing_is_named_described_and_has_its_table(live: Path) -> None:
    page = read(live)
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    drawings = [a for tag, a in page.tags if tag == "svg" and a.get("role") == "img"]
    assert len(drawings) >= 16
    for drawing in drawings:
        assert set((drawing["aria-labelledby"] or "").split()) <= set(ids)
    figures = sum(tag == "figure" for tag, _ in page.tags)
    assert len(drawings) == 2 * figures  # wide and narrow
    assert page.text.count("Figures as a table") == figures


def test_what_was_not_measured_is_stated_and_not_drawn(offline: Path) -> None:
    page = read(offline)
    for title in ("Cold and warm TTFT", "Divergence of the answers (KL)", "F1, cold against warm", "Cost of a miss"):
        assert f"{title} Not measured." in page.text
    assert "TTFT not measured. Eligible by plan:" in page.text
    assert "Not judged" in page.text
    assert not re.search(rf"\d{TIMES}", page.text)


def test_a_run_without_engine_reports_claims_no_reuse(tmp_path: Path) -> None:
    rows = [replace(row, backend=None, backend_confirmed_blocks=None, plan=None) for row in live_rows()]
    page = read(write_live(tmp_path / "r.json", rows))
    assert "reused only: not measured" in page.text
    assert "No backend reported on any request." in page.text
    assert "Pairs without an engine report" in page.text


def test_reused_only_never_is_without_blended(live: Path) -> None:
    page = build_page(Sources((live,))).html()
    blocks = re.findall(r'<(?:p|span) class="(?:headline|message|detail)">(.*?)</(?:p|span)>', page)
    reported = [block for block in blocks if "reused only" in block or "with confirmed reuse" in block]
    assert len(reported) >= 3
    for block in reported:
        assert re.search(r"lended|misses included|n = \d+; reused only", block), block
        assert "n = " in block or "clean pairs" in block


def test_the_headline_is_the_paired_block_of_the_result(live: Path) -> None:
    paired = json.loads(live.read_text(encoding="utf-8"))["paired"]
    reported = []
    for name in ("blended", "hit_only"):
        value, (low, high) = (paired[f"{name}_ttft_speedup_{part}"] for part in ("median", "ci95"))
        reported.append(f"{value:.2f}{TIMES} [{low:.2f}, {high:.2f}]")
    pairs, hits = (paired[f"{name}_ttft_speedup_n"] for name in ("blended", "hit_only"))
    assert pairs == 32  # of 40: negative controls are in no speedup
    headline = (
        f"{reported[0]} median TTFT speedup over {pairs} clean pairs, misses included; "
        f"{reported[1]} over the {hits} with confirmed reuse."
    )
    assert headline in read(live).text


def test_the_headline_says_how_many_pairs_are_clean_and_what_cold_means(tmp_path: Path) -> None:
    rows = live_rows()
    for number, values in (
        (0, {"status": "timeout", "ttft_ms": None}),
        (1, {"cached_tokens": 64, "contaminated": True}),
    ):
        cold = rows[number].cold
        assert cold is not None
        rows[number] = replace(rows[number], cold=replace(cold, **values), pair=PairRow(warm_first=False))
    path = write_live(tmp_path / "r.json", rows)
    paired = json.loads(path.read_text(encoding="utf-8"))["paired"]
    low, high = paired["blended_e2e_speedup_ci95"]
    whole = f"{paired['blended_e2e_speedup_median']:.2f}{TIMES} [{low:.2f}, {high:.2f}]"
    reported = (
        f"Clean: 38 of 40 pairs. To the last token: {whole}, n = {paired['blended_e2e_speedup_n']}. {COLD_IS_A_MISS}"
    )
    assert reported in read(path).text


def test_a_stock_engine_beside_it_is_reported(tmp_path: Path, live: Path, capsys: Any) -> None:
    stock = write_live(tmp_path / "stock.json", [_stock(row) for row in live_rows()])
    flags = ("--stock-result", str(stock), "--max-cold-arm-overhead", "3")
    verdict = judged(tmp_path, live, capsys, *flags)
    page = read(live, verdicts=(verdict,))
    assert f"it took 2.00{TIMES} [2.00, 2.00] the TTFT of a stock engine, n = 40." in page.text
    assert f"cold TTFT relative to a stock engine, median max_cold_arm_overhead at most 3.0 2.00{TIMES}" in page.text


def test_a_number_of_pairs_is_no_speedup() -> None:
    gate = {"gate": "min_blended_ttft_speedup", "metric": "hit_only_ttft_speedup_n", "value": 21, "passed": True}
    assert [row.found for row in gate_rows({"gates": [gate]})] == ["21"]


def _stock(row: RequestRow) -> RequestRow:
    """The same item on a server without connector that is twice as fast: cold only."""
    assert row.cold is not None
    fast = replace(row.cold, ttft_ms=(row.cold.ttft_ms or 0.0) / 2)
    return replace(
        row, cold=fast, warm=None, pair=None, backend=None, backend_confirmed_blocks=None, plan=None, quality_pass=None
    )


def test_correctness_is_shown_with_that_of_the_cold_answers(tmp_path: Path) -> None:
    rows = []
    for row in live_rows():
        assert row.cold is not None
        assert row.warm is not None
        cold, warm = replace(row.cold, token_recall=0.25), replace(row.warm, token_recall=0.125)
        rows.append(replace(row, cold=cold, warm=warm, quality_pass=False))
    page = read(write_live(tmp_path / "r.json", rows))
    assert "Warm answers that pass 100 %" not in page.text
    tile = "Warm answers that pass 0 % 0 / 40 answers; token recall 0.125 warm, 0.250 cold, n = 40"
    assert tile in page.text


def test_the_funnel_is_the_sum_of_the_rows() -> None:
    rows = live_rows()
    ordinary = [row for row in rows if not row.negative_control]
    whole = funnel_of(rows)[0]
    found = dict(zip((stage.key for stage in STAGES), whole.stages, strict=True))
    blocks, tokens = sum(r.total_blocks for r in ordinary), sum(r.prompt_tokens for r in ordinary)
    wanted = {
        "exact": (0, blocks),
        "candidate": (sum(r.plan.candidate_blocks for r in ordinary if r.plan), blocks),
        "eligible": (sum(r.plan.eligible_blocks for r in ordinary if r.plan), blocks),
        "planned": (sum(r.backend.advertised_tokens or 0 for r in ordinary if r.backend), tokens),
        "materialized": (sum(r.backend.reused_tokens or 0 for r in ordinary if r.backend), tokens),
        "confirmed": (sum(r.backend_confirmed_blocks or 0 for r in ordinary), blocks),
    }
    parts = {key: (f.figure.numerator, f.figure.denominator) for key, f in found.items() if f is not None}
    assert parts == wanted
    assert [row.name for row in funnel_of(rows)[1:]] == list(TRANSFORMS)


def test_the_funnel_tells_none_from_zero() -> None:
    rows = [replace(row, backend=None, backend_confirmed_blocks=None) for row in live_rows()]
    stages = dict(zip((stage.key for stage in STAGES), funnel_of(rows)[0].stages, strict=True))
    assert stages["materialized"] is None
    assert stages["confirmed"] is None
    planned = stages["planned"]
    assert planned is not None
    assert planned.source == "bench"


def test_a_verdict_that_passed_and_one_that_failed(tmp_path: Path, live: Path, capsys: Any) -> None:
    passed = judged(tmp_path, live, capsys, "--min-blended-ttft-speedup", "1.05")
    page = read(live, verdicts=(passed,))
    assert re.search(rf"Verdict Pass \d\.\d\d{TIMES} \[", page.text)
    assert "blended TTFT speedup, median of all clean pairs min_blended_ttft_speedup at least 1.05" in page.text
    failed = judged(tmp_path, live, capsys, "--min-blended-ttft-speedup", "99")
    page = read(live, verdicts=(failed,))
    assert "Verdict Fail" in page.text
    assert "wanted at least 99" in page.text


def test_a_verdict_without_a_gate_judges_nothing(tmp_path: Path, live: Path, capsys: Any) -> None:
    verdict = judged(tmp_path, live, capsys)
    assert json.loads(verdict.read_text(encoding="utf-8"))["requested_gates"] == {}
    page = read(live, verdicts=(verdict,))
    assert "Verdict Not judged" in page.text
    assert "Verdict Pass" not in page.text


def test_a_verdict_of_another_state_of_the_file_is_refused(tmp_path: Path, live: Path, capsys: Any) -> None:
    verdict = judged(tmp_path, live, capsys, "--min-blended-ttft-speedup", "1.05")
    write_live(live, live_rows(faster=0.5))
    with pytest.raises(ConfigurationError, match="matches none of the results of this page"):
        read(live, verdicts=(verdict,))


def test_a_verdict_is_matched_by_bytes_and_not_by_name(tmp_path: Path, live: Path, capsys: Any) -> None:
    folder = tmp_path / "yesterday"
    folder.mkdir()
    namesake = write_live(folder / live.name, live_rows(seed=2))
    verdict = judged(tmp_path, namesake, capsys, "--min-blended-ttft-speedup", "1.05")
    with pytest.raises(ConfigurationError, match=r"live\.json"):
        read(live, verdicts=(verdict,))
    moved = tmp_path / "moved.json"
    moved.write_bytes(namesake.read_bytes())
    assert "min_blended_ttft_speedup at least 1.05" in read(moved, verdicts=(verdict,)).text
    record = json.loads(verdict.read_text(encoding="utf-8"))
    del record["result_sha256"]
    verdict.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ContractError, match="result_sha256"):
        read(moved, verdicts=(verdict,))


def test_what_is_no_verdict_is_refused(tmp_path: Path, live: Path) -> None:
    verdict = tmp_path / "verdict.json"
    verdict.write_text("{}", encoding="utf-8")
    with pytest.raises(ContractError, match="not a verdict"):
        read(live, verdicts=(verdict,))


def test_a_forged_result_is_not_credible_and_has_no_headline(live: Path) -> None:
    record = json.loads(live.read_text(encoding="utf-8"))
    record["paired"]["blended_ttft_speedup_median"] = 12.3
    live.write_text(json.dumps(record), encoding="utf-8")
    page = read(live)
    assert "Not credible Do not use these figures." in page.text
    assert f"12.3{TIMES}" not in page.text


def test_a_figure_that_must_be_zero_and_is_not_fails_without_a_verdict(tmp_path: Path) -> None:
    rows = live_rows()
    assert rows[0].plan is not None
    rows[0] = replace(rows[0], plan=replace(rows[0].plan, unverified_tokens=16))
    page = read(write_live(tmp_path / "r.json", rows))
    assert "Verdict Fail" in page.text
    assert "A figure that must be zero is not." in page.text


def test_every_confirmed_reuse_needs_an_event(tmp_path: Path, live: Path) -> None:
    reused = [row.item_id for row in live_rows() if row.backend and row.backend.reused_tokens]
    events = [
        {"event": kind, "request_id": item, "tokens": 16}
        for item in reused
        for kind in ("semantic_hit", "materialized")
    ]
    summary = tmp_path / "engine.json"
    summary.write_text(json.dumps({"engine": "vllm", "events": events}), encoding="utf-8")
    assert "all joined" in read(live, engine_summaries=(summary,)).text
    summary.write_text(json.dumps({"engine": "vllm", "events": events[2:]}), encoding="utf-8")
    assert "1 without an event" in read(live, engine_summaries=(summary,)).text


def test_the_noise_floor_is_drawn_and_its_absence_stated(tmp_path: Path, live: Path) -> None:
    assert "Noise floor not measured: pass --noise-floor." in read(live).text
    floor = tmp_path / "floor.json"
    floor.write_text(json.dumps({"calibration_version": "sembench.calibration.v1", "mean_kl_topk": 0.0002}), "utf-8")
    assert "noise floor 2e\N{MINUS SIGN}4" in read(live, noise_floor=floor).text


def test_comparison_names_what_flipped(tmp_path: Path, live: Path) -> None:
    rows = live_rows(faster=1.25)
    lost = rows[1]
    assert lost.backend is not None
    assert lost.warm is not None
    rows[1] = replace(
        lost,
        quality_pass=False,
        backend_confirmed_blocks=0,
        warm=replace(lost.warm, cached_tokens=0),
        backend=replace(
            lost.backend,
            outcome="backend_declined_reuse",
            reused_tokens=0,
            advertised_tokens=0,
            computed_tokens=lost.prompt_tokens,
            runs=0,
            decline_reason="stale",
        ),
    )
    other = write_live(tmp_path / "b.json", rows)
    page = read(compared=(live, other))
    assert "Quality: 0 gained and 1 lost of 40; reuse: 0 gained and 1 lost of 40." in page.text
    assert f"{lost.item_id} {lost.transform} reuse reused stale" in page.text
    assert f"requests with confirmed reuse 52.5 % 50.0 % {MINUS}2.5 pp [" in page.text
    assert re.search(rf"median A / B 1\.25{TIMES} \[1\.25, 1\.25\]", page.text)
    assert re.search(rf"cold TTFT, A over B\s+1\.00{TIMES} \[1\.00, 1\.00\]", page.text)


def test_a_result_compared_with_its_like_differs_in_nothing(tmp_path: Path, live: Path) -> None:
    twin = write_live(tmp_path / "twin.json", live_rows())
    page = read(compared=(live, twin))
    assert "0 of 7 rates differ by more than chance" in page.text
    assert "Items that flipped None" in page.text
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))


def test_other_manifests_are_warned_of(tmp_path: Path, live: Path) -> None:
    record = json.loads(live.read_text(encoding="utf-8"))
    record["run"]["manifest_digest"] = "cd" * 32
    other = tmp_path / "other.json"
    other.write_text(json.dumps(record), encoding="utf-8")
    assert "The manifest digests differ" in read(compared=(live, other)).text


def test_pictures_come_from_the_same_charts(tmp_path: Path, live: Path) -> None:
    pytest.importorskip("resvg_py")
    page = build_page(Sources((live,)))
    written = write_pngs(page.charts[:4], tmp_path / "png", page.funnels)
    assert [path.name for path in written] == ["funnel.png", *(f"{chart.key}.png" for _, chart in page.charts[:4])]
    for path in written:
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_pictures_without_resvg_name_the_extra(tmp_path: Path, live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("sembase.onepage.png.load_target", absent)
    with pytest.raises(MissingDependencyError, match=r"kvmend\[benchmarks\]"):
        write_pngs(build_page(Sources((live,))).charts, tmp_path)


def test_the_command_writes_the_page_and_refuses_wrong_usage(tmp_path: Path, live: Path, capsys: Any) -> None:
    page = tmp_path / "out" / "page.html"
    assert main(["report", str(live), "--html", str(page), "--title", "A title"]) == 0
    assert "<title>A title</title>" in page.read_text(encoding="utf-8")
    assert main(["report", "--html", str(page)]) == 2
    assert main(["report", "--compare", str(live), str(live), "--html", str(page)]) == 2
    assert main(["report", str(live), "--html", str(live)]) == 2
    assert main(["report", str(live), "--html", str(page), "--load", str(live)]) == 2
    assert "would be overwritten" in capsys.readouterr().err


def test_results_of_the_same_file_name_are_reported_apart_by_their_folders(tmp_path: Path) -> None:
    assert name_of(tmp_path / "e2e-on" / "result.json") == "e2e-on"
    assert name_of(tmp_path / "e2e-on" / "monday.json") == "monday.json"
