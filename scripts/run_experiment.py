"""The promised name of ``kvmend simulate run``: ``python scripts/run_experiment.py --config FILE``."""

import sys

from semantic_kv.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
