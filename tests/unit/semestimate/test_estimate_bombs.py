"""Small files that unpack to large ones: the estimate reads or refuses them in bounded memory.

Each runs in a process of its own that may take ``ROOM_BYTES`` of address space more than it has after its imports.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from pathlib import Path

import pytest

from sembase.command_line import ExitCode

ROOM_BYTES = 1 << 30
HANG_S = 120  # seconds; the unrepaired readers need hours
ESTIMATE = f"""
import resource, sys
from kvmend.front import main
import semestimate.run, semestimate.page, sembase.trace.formats.openai_lines, sembase.trace.formats.vllm_log
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + {ROOM_BYTES},) * 2)
sys.exit(main(["estimate", *sys.argv[1:], "--quiet"]))
"""


def packed(path: Path, parts: Iterable[bytes]) -> Path:
    with gzip.open(path, "wb", 6) as stream:
        for part in parts:
            stream.write(part)
    return path


def estimate(trace: Path) -> tuple[int, str]:
    command = [sys.executable, "-c", ESTIMATE, str(trace), "--output", str(trace.parent / "page.html")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, cwd=trace.parent, check=False)
    return done.returncode, done.stdout + done.stderr


def vllm_line(prompt: bytes) -> bytes:
    return b"DEBUG 11-16 08:40:23 [logger.py:1] Request c details: prompt: '" + prompt + b"', prompt_token_ids: None\n"


def chat(content: bytes, *more: bytes) -> Iterator[bytes]:
    yield from (b'{"model":"m","messages":[{"role":"user","content":"', content, b'"}],"x":[', *more, b"{}]}\n")


def blanks(head: bytes) -> Iterator[bytes]:
    yield head
    yield from repeat(b" " * (1 << 20), 100)


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("objects.jsonl.gz", lambda: chat(b"hi", b"{}," * 6_000_000), "line 1: longer than 16 MiB"),
        ("some.jsonl.gz", lambda: chat(b"hi", b"{}," * 5_000_000), "more than 2,097,152 objects and lists"),
        ("paragraphs.jsonl.gz", lambda: chat(b"a\\n\\n" * 3_000_000), "more than 262,144 parts"),
        ("prompt.log.gz", lambda: [vllm_line(b"a" * 17_000_000)], "line 1: longer than 16 MiB"),
        ("blanks.json.gz", lambda: blanks(b'{"requests":['), "larger than 64 MiB"),
        ("blanks.csv.gz", lambda: blanks(b"request_id,semantic_type,token_count\n"), "longer than 16 MiB"),
    ],
)
def test_a_bomb_is_refused_in_bounded_memory(
    tmp_path: Path, name: str, make: Callable[[], Iterable[bytes]], message: str
) -> None:
    status, output = estimate(packed(tmp_path / name, make()))
    assert message in output
    assert status == ExitCode.USAGE


def test_a_log_of_a_very_long_prompt_is_read_in_bounded_memory(tmp_path: Path) -> None:
    prompt = b"a" * 8_000_000 + b" word\\n" * 1_000_000
    status, output = estimate(packed(tmp_path / "long.log.gz", [vllm_line(prompt)] * 2))
    assert status == ExitCode.OK, output
    assert "2 requests" in output
