"""The promised name of ``kvmend simulate run-all``: ``python scripts/run_all_experiments.py``."""

import sys

from semantic_kv.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["run-all", *sys.argv[1:]]))
