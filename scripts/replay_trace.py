"""The promised name of ``kvmend simulate replay``: ``replay_trace.py --trace FILE --cache-token-budget N``."""

import sys

from semantic_kv.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["replay", *sys.argv[1:]]))
