"""``python -m semblend.cli``: the command ``semblend`` of this interpreter's environment."""

from semblend.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
