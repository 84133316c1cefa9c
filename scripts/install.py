"""Install packages with uv, from the places pip is configured for.

Run ``python -m scripts.install ARGUMENTS``: the arguments are those of ``pip install``; ``--python`` names another
environment than the one this runs in. uv unpacks a package once and links it into every environment that wants it,
where pip would fetch and unpack torch four times over; but it does not read pip's settings, so they are passed to it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

# pip's option -> uv's variable, and what uv puts between several places. pip's own separator is a blank or a new line.
UV_NAMES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "cert": ("SSL_CERT_FILE", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
}
# Later ones win, as in pip.
SECTIONS = ("global", "install", ":env:")


def install(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Raises ``CalledProcessError`` when uv could not; uv has printed the reason by then."""
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet"]
    if "--python" not in arguments:
        command += ["--python", sys.executable]
    known = os.environ if environment is None else environment
    subprocess.run([*command, *arguments], check=True, env={**uv_variables(pip_settings()), **known})


def pip_settings() -> str:
    return subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def uv_variables(settings: str) -> dict[str, str]:
    """uv's variables for the lines of ``pip config list``; a variable that the caller has set wins over these."""
    found: dict[str, tuple[int, str]] = {}
    for line in settings.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if option in UV_NAMES and section in SECTIONS:
            rank = SECTIONS.index(section)
            variable, between = UV_NAMES[option]
            if rank >= found.get(variable, (0, ""))[0]:
                found[variable] = rank, between.join(str(ast.literal_eval(value)).split())
    # pip takes the best version of all places; uv by itself stops at the first place that knows the name.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match"} | {name: value for name, (_, value) in found.items()}


if __name__ == "__main__":
    try:
        install(sys.argv[1:])
    except subprocess.CalledProcessError as failed:
        raise SystemExit(failed.returncode) from None
