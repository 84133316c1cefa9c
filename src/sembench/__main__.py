"""``python -m sembench``."""

from sembench.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
