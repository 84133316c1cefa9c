"""``make e2e-fleet``: two real vLLM servers share donors through a store and a directory in Valkey, in one run.

Server a captures, server b asks: TTFT cold, with a's donor, and with the same donor in b's memory. Then a is killed and
started again, and the directory and Mooncake's node and master are killed and stopped during requests. Readings are
kept as they come: a run that is interrupted continues where it was, and ``--report`` prints what there is.
"""

from __future__ import annotations

import argparse
import secrets
import tempfile
import time
from itertools import islice
from pathlib import Path

from scripts.engines.mooncake import mooncake_missing
from scripts.engines.specs import native_dtype, vllm_missing
from scripts.models.known import MODELS, SMOLLM2

from benchmarks.console import RESULTS, exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.corpus import CorpusUnavailableError
from benchmarks.discovery.codec import TokenizerCodec
from benchmarks.documents import DEFAULT_TEXTS, read_documents
from benchmarks.fleet.faults import (
    AFTER_RESTART,
    DIRECTORY_FAULTS,
    PART_FAULTS,
    STORE_FAULTS,
    lose_engine,
    lose_part,
)
from benchmarks.fleet.figures import FAULT_COLUMNS, PAIR_COLUMNS, fault_rows, pair_rows, verdicts_of
from benchmarks.fleet.pairs import measure_pair, warm_up
from benchmarks.fleet.readings import Readings
from benchmarks.fleet.replicas import CARRIERS, Fleet
from benchmarks.vllm.servers import CORES
from benchmarks.vllm.texts import LONG_SOURCES, Texts
from benchmarks.vllm.workload import SAME_DOCUMENT, SIZES, Workload

NAME = "e2e-fleet"
DOCUMENTS = 64
CHARACTERS = 48_000  # of a document: enough for the longest prompts


def main() -> int:
    chosen = _parse()
    missing = vllm_missing(MODELS[chosen.model]) or (mooncake_missing() if chosen.carrier == "mooncake" else None)
    if missing is not None:
        progress(f"nothing measured: {missing}")
        return 3
    path = RESULTS / f"{_name(chosen)}.jsonl"
    if chosen.fresh:
        path.unlink(missing_ok=True)
    settings = {
        "seed": chosen.seed,
        "dtype": native_dtype(),
        "cores": CORES,
        "wait_s": chosen.wait_seconds,
        "carrier": chosen.carrier,
        "model": chosen.model,
        "fault_size": chosen.fault_size,
        "snapshots": chosen.snapshots,
        "control": "beside every request of a fault",  # earlier readings had none
    }
    readings = Readings(path, settings)
    if not chosen.report:
        try:
            _run(chosen, readings)
        except CorpusUnavailableError as unavailable:
            progress(f"nothing measured: {unavailable}")
            return 3
    return _report(chosen, readings)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--items", type=int, default=9, help="per size")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["2K"])
    parser.add_argument("--model", choices=MODELS, default=SMOLLM2.name)
    parser.add_argument("--carrier", choices=CARRIERS, default="file", help="where the servers keep shared donors")
    parser.add_argument("--snapshots", action="store_true", help="Mooncake's master keeps snapshots and long leases")
    parser.add_argument("--faults", nargs="*", choices=PART_FAULTS, help="of directory and store (default: all)")
    parser.add_argument("--requests", type=int, default=40, help="during each of these faults")
    parser.add_argument("--fault-size", choices=SIZES, default="1K", help="of the prompts of faults")
    parser.add_argument("--lives", type=int, default=2, help="requests after a kill, as many after a restart; 0: none")
    parser.add_argument("--wait-seconds", type=float, default=2.0, help="fleet_wait_seconds of the servers")
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the real texts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="forget earlier readings")
    parser.add_argument("--report", action="store_true", help="print earlier readings, measure nothing")
    parser.add_argument("--enforce", action="store_true", help="fail if a target is missed")
    return parser.parse_args()


def _run(chosen: argparse.Namespace, readings: Readings) -> None:
    model = MODELS[chosen.model]
    codec = TokenizerCodec(model.tokenizer)
    workload = Workload(_texts(chosen.texts, codec), codec, chosen.seed, model.first_token)
    run = secrets.token_hex(3)
    with (
        tempfile.TemporaryDirectory(prefix="fleet-") as folder,
        Fleet(Path(folder), chosen.wait_seconds, chosen.carrier, model, has_snapshots=chosen.snapshots) as fleet,
    ):
        if chosen.items:
            warm_up(fleet, workload, run)
        for size in chosen.sizes:
            measured = {reading.number for reading in readings.pairs(size)}
            for number in sorted(set(range(chosen.items)) - measured):
                started = time.monotonic()
                reading = measure_pair(fleet, workload.make(size, SAME_DOCUMENT, number), run)
                readings.add(reading)
                progress(
                    f"{size} {number + 1} of {chosen.items}: cold {reading.cold_ms:.0f}, remote "
                    f"{reading.remote_ms:.0f}, local {reading.local_ms:.0f} ms; {reading.remote_tokens} and "
                    f"{reading.local_tokens} tokens reused; {time.monotonic() - started:.0f} s"
                )
        for event in _faults(chosen):
            if not readings.recoveries(event):
                lose_part(fleet, workload, readings, run, event, chosen.fault_size, chosen.requests)
                progress(f"{event}, and back")
        if chosen.lives and not readings.faults(AFTER_RESTART):
            lose_engine(fleet, workload, readings, run, chosen.fault_size, chosen.lives)
            progress("the capturing engine was killed and started again")


def _name(chosen: argparse.Namespace) -> str:
    parts = [NAME]
    parts += [chosen.carrier] if chosen.carrier != "file" else []
    parts += ["snapshots"] if chosen.snapshots else []
    parts += [chosen.model] if chosen.model != SMOLLM2.name else []
    return "-".join(parts)


def _faults(chosen: argparse.Namespace) -> tuple[str, ...]:
    possible = (*(STORE_FAULTS if chosen.carrier == "mooncake" else ()), *DIRECTORY_FAULTS)
    return possible if chosen.faults is None else tuple(event for event in possible if event in chosen.faults)


def _texts(folder: Path, codec: TokenizerCodec) -> Texts:
    """Heads of long real documents; the whole corpus would take minutes to tokenize."""
    found = (each.text[:CHARACTERS] for each in read_documents(folder) if each.source in LONG_SOURCES)
    documents = tuple(tuple(codec.encode(text).tolist()) for text in islice(found, DOCUMENTS))
    if not documents:
        raise CorpusUnavailableError(f"no texts under {folder}; give their folder with --texts")
    return Texts("", documents, (), ())


def _report(chosen: argparse.Namespace, readings: Readings) -> int:
    show_table("Donors of a fleet: TTFT on server b, median (range)", PAIR_COLUMNS, pair_rows(readings, chosen.sizes))
    show_table(f"Parts that die, {chosen.fault_size} prompts", FAULT_COLUMNS, fault_rows(readings))
    verdicts = verdicts_of(readings, chosen.sizes, chosen.wait_seconds, _faults(chosen))
    show_verdicts(verdicts)
    record = {
        "settings": {key: str(value) for key, value in vars(chosen).items()},
        "pairs": [dict(zip(PAIR_COLUMNS, row, strict=True)) for row in pair_rows(readings, chosen.sizes)],
        "faults": [dict(zip(FAULT_COLUMNS, row, strict=True)) for row in fault_rows(readings)],
        "verdicts": [verdict.as_record() for verdict in verdicts],
    }
    path = write_results(_name(chosen), record)
    progress(f"written: {path.name} in {path.parent.name}/")
    return exit_code(verdicts, chosen.enforce)


if __name__ == "__main__":
    raise SystemExit(main())
