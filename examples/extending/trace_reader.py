"""A trace reader of your own: lines of ``seconds <tab> session <tab> prompt``.

Commands read such files once the entry point ``tabbed = "my_package:FORMAT"`` is in the group ``semantic_kv.trace``.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from semantic_kv.simulate import simulate
from sembase.trace.formats import FORMATS
from sembase.trace.formats.interface import record_format
from sembase.trace.load import load_trace
from sembase.trace.record import TraceBlock, TraceRecord


def records(path: Path) -> Iterator[TraceRecord]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        seconds, session, prompt = line.split("\t")
        blocks = tuple(TraceBlock("other", len(part.split()), text=part) for part in prompt.split(". ") if part)
        yield TraceRecord(f"line-{number + 1}", float(seconds) * 1000, blocks, session_id=session)


FORMAT = record_format("tabbed", "seconds, session and prompt, separated by tabs", lambda head: b"\t" in head, records)
FORMATS.register("tabbed", FORMAT)

with tempfile.TemporaryDirectory() as folder:
    log = Path(folder) / "log.tsv"
    log.write_text("0\ta\tBe brief. The report of May. Sum it up\n5\ta\tBe brief. The report of May. Who wrote it\n")
    trace = load_trace(log, "tabbed")
run = simulate(trace, capacity=100, unit="tokens")
print(f"{trace.request_count} requests, {run.hit_tokens} of {run.prompt_tokens} tokens hit")
