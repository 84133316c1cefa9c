"""``python -m semantic_kv``."""

from semantic_kv.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
