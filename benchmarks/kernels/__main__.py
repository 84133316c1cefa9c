"""``make kernel-table``: the move kernel compiled for every target and form, as one Markdown table."""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks.kernels.compiled import FORMS, TARGETS, compile_move

WITHOUT_FP8 = {"sm_80"}  # Triton has no e4m3 numbers for this generation


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.kernels", description=__doc__)
    parser.add_argument("--targets", nargs="*", choices=sorted(TARGETS), default=list(TARGETS))
    chosen = parser.parse_args()
    print("| keys | target | registers | spilled bytes | shared bytes | 128-bit | 8, 16-bit | code bytes | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    spilled = 0
    for form in FORMS:
        for name in chosen.targets:
            if form.dtype.itemsize == 1 and name in WITHOUT_FP8:
                continue
            started = time.perf_counter()
            found = compile_move(form, TARGETS[name])
            took = time.perf_counter() - started
            spilled += found.spilled_bytes
            figures = (found.registers, found.spilled_bytes, found.shared_bytes, found.wide, found.narrow)
            print(f"| {form.name} | {name} | {' | '.join(map(str, figures))} | {found.code_bytes} | {took:.1f} |")
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main())
