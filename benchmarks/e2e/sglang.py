"""From real texts to a judged report on a real SGLang server with our radix backend: ``run-live-sglang --paired``.

The same steps and gates as the vLLM run. The arm ``off`` is the stock server, which the gates must reject. Donors are
in the radix tree itself, so the warm arm also benefits from its exact prefix, as in production.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

from scripts.engines.server import EngineServer
from scripts.engines.specs import EngineOptions, sglang_missing, sglang_spec

from benchmarks.console import RESULTS, progress, show_verdicts
from benchmarks.corpus import TOKENIZER
from benchmarks.documents import ROOT
from benchmarks.e2e import steps
from benchmarks.equal_threads import launch
from benchmarks.targets import Verdict

PAGE_TOKENS = 16
TOP_LOGPROBS = 20
FLUSH = "/flush_cache"
SHORT = ("multi_news", "multidoc_qa")  # some 3,000 tokens a prompt; the third takes half a minute each, cold, on a core


def main() -> int:
    arguments = _parse()
    if (missing := sglang_missing()) is not None or not arguments.texts.is_dir():
        progress(f"nothing measured: {missing or f'no texts in {arguments.texts} (--texts FOLDER)'}")
        return 3
    verdicts = []
    for name in arguments.arms:
        verdicts += _run(name, arguments)
    show_verdicts(verdicts)
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.e2e.sglang", description=__doc__)
    parser.add_argument("--arms", nargs="+", choices=("on", "off"), default=["on"], help="default: on")
    parser.add_argument("--cores", default="0", help="cores of the server (default: 0)")
    steps.add_arguments(parser, records=1, datasets=SHORT)
    return parser.parse_args()


def _run(name: str, arguments: argparse.Namespace) -> list[Verdict]:
    started = time.monotonic()
    folder = RESULTS / f"e2e-sglang-{name}"
    manifest = steps.build(arguments, folder)
    events = folder / "events.jsonl" if name == "on" else None
    if events is not None:
        events.unlink(missing_ok=True)
    options = EngineOptions(
        cores=arguments.cores, extra=("--page-size", str(PAGE_TOKENS), "--enable-metrics"), startup_timeout_s=900.0
    )
    semblend = None if events is None else {"events": str(events)}
    with launch(sglang_spec(options, semblend=semblend)) as server:
        progress(f"{name}: server ready after {server.startup_s:.0f} s")
        _measure(arguments, server, manifest, events, folder)
        # Copied while it serves: messages of an engine that is being stopped are not errors of the run.
        log = Path(shutil.copy(server.log_path, folder / "engine.log"))
    summaries = steps.summarize("sglang", folder, events, log)
    passed = steps.judge(folder, manifest, steps.gates_of(folder, summaries, partial=arguments.max_items is not None))
    steps.draw(folder, summaries)
    minutes = (time.monotonic() - started) / 60
    progress(f"{name}: report in {(folder / 'report.html').relative_to(ROOT)} after {minutes:.1f} minutes")
    result = json.loads((folder / "result.json").read_text())
    steps.figures(name, result)
    verdicts = [steps.expected(name, passes=name == "on", passed=passed)]
    if name == "on":
        confirmed = result["aggregate"]["negative_control_backend_confirmed_rate"]
        verdicts.append(Verdict("on: negative controls confirmed", "==", 0, confirmed, is_law=True))
    return verdicts


def _measure(
    arguments: argparse.Namespace, server: EngineServer, manifest: Path, events: Path | None, folder: Path
) -> None:
    most = arguments.max_items
    size = ("--block-size", str(PAGE_TOKENS), "--capture-logprobs", str(TOP_LOGPROBS))
    steps.sembench(
        "calibrate-noise-floor",
        *("--manifest", str(manifest), "--output", str(folder / "noise.json"), "--gateway-url", server.base_url),
        *("--endpoint", "sglang_generate", "--reset-url", FLUSH, "--max-tokens", "16", *size),
        *("--max-items", str(min(steps.NOISE_ITEMS, most or steps.NOISE_ITEMS))),
    )
    audit = () if events is None else ("--connector-audit", str(events), "--check-propagation", "0.2")
    steps.sembench(
        "run-live-sglang",
        *("--manifest", str(manifest), "--output", str(folder / "result.json"), "--base-url", server.base_url),
        *("--paired", *size, *audit, *(("--max-items", str(most)) if most else ())),
        *("--tokenizer", str(TOKENIZER), "--seed", str(arguments.seed), *(("--resume",) if arguments.resume else ())),
    )


if __name__ == "__main__":
    raise SystemExit(main())
