"""``python -m semblend``: the command ``semblend``."""

from semblend.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
