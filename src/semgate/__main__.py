"""``python -m semgate``."""

from semgate.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
