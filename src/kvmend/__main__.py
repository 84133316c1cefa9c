"""``python -m kvmend``: the command ``kvmend``."""

from kvmend.front import main

if __name__ == "__main__":
    raise SystemExit(main())
