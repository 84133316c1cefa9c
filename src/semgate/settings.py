"""The only module of semgate that reads the environment: flags > environment > one TOML file > defaults.

In: flags as text, the environment, ``[proxy]`` or ``[router]`` of the TOML file; out: an immutable settings value.
Unknown names are refused with the nearest known one. The reference page and the flags are made from the same fields.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from sembase.errors import ConfigurationError
from semgate.setting_fields import KINDS, ProxySettings, RouterSettings, ServerSettings

__all__ = [
    "CONFIG_VARIABLE",
    "KINDS",
    "PREFIXES",
    "ProxySettings",
    "RouterSettings",
    "ServerSettings",
    "config_path",
    "load",
    "reference_table",
    "refuse_unknown_variables",
    "shown_default",
    "variable_of",
]

PREFIXES: Final = ("SEMGATE_", "SEMANTICKV_")
CONFIG_VARIABLE: Final = "SEMGATE_CONFIG"
_SERVICE_LINK: Final = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT_\d+_(TCP|UDP|SCTP)(_|$)")


S = TypeVar("S", bound=ServerSettings)


def load(
    kind: type[S],
    flags: Mapping[str, str | None] | None = None,
    environment: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> S:
    """The settings of one command; ``flags`` maps field names to text, None where the flag was not given."""
    around = os.environ if environment is None else environment
    refuse_unknown_variables(around)
    if config is None and around.get(CONFIG_VARIABLE):
        config = Path(around[CONFIG_VARIABLE])
    filed = _table(config, kind) if config is not None else {}
    values: dict[str, Any] = {}
    for each in fields(kind):
        given = (flags or {}).get(each.name)
        name, text = f"--{each.name.replace('_', '-')}", given
        if text is None:
            name, text = variable_of(each), around.get(variable_of(each))
        if text is None and each.name in filed:
            name, text = f"{config}: {kind.table}.{each.name}", filed[each.name]
        if text is not None:
            values[each.name] = _parsed(each, text, name)
    return kind(**values)


def config_path(given: Path | None, environment: Mapping[str, str] | None = None) -> Path | None:
    """The TOML file in force: the flag's, or the environment's."""
    around = os.environ if environment is None else environment
    named = around.get(CONFIG_VARIABLE)
    return given or (Path(named) if named else None)


def variable_of(each: Field[Any]) -> str:
    return str(each.metadata["environment"])


def refuse_unknown_variables(around: Mapping[str, str]) -> None:
    known = {variable_of(each) for kind in KINDS for each in fields(kind)} | {CONFIG_VARIABLE}
    for name, value in around.items():
        if name.startswith(PREFIXES) and name not in known and not _is_service_link(name, value):
            raise ConfigurationError(f"{name} is not a setting of semgate; the nearest is {_nearest(name, known)}")


def _is_service_link(name: str, value: str) -> bool:
    """Kubernetes sets SEMGATE_ROUTER_SERVICE_HOST and the like in every pod beside a service of that name."""
    return value.startswith(("tcp://", "udp://", "sctp://")) or _SERVICE_LINK.search(name) is not None


def reference_table(kind: type[ServerSettings]) -> str:
    """The documentation of every setting of one command, as Markdown."""
    rows = ["| TOML key (flag) | Environment | Default | Description |", "|---|---|---|---|"]
    for each in sorted(fields(kind), key=lambda each: each.name):
        flag_name = f"--{each.name.replace('_', '-')}"
        said = str(each.metadata["about"]).replace("|", "\\|")
        rows.append(f"| `{each.name}` (`{flag_name}`) | `{variable_of(each)}` | `{shown_default(each)}` | {said} |")
    return "\n".join(rows) + "\n"


def shown_default(each: Field[Any]) -> str:
    value = each.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    return "none" if value in (None, "") else str(value)


def _parsed(each: Field[Any], text: str, name: str) -> Any:
    parse: Callable[[str], Any] = each.metadata["parse"]
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigurationError(f"{name}={text!r}: {error}") from None


def _table(path: Path, kind: type[ServerSettings]) -> dict[str, str]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}; check --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: is not TOML: {error}") from None
    tables = {each.table: each for each in KINDS}
    for name, table in document.items():
        if name not in tables:
            raise ConfigurationError(f"{path}: unknown table [{name}]; known: [proxy] and [router]")
        known = {each.name for each in fields(tables[name])}
        if not isinstance(table, dict):
            raise ConfigurationError(f"{path}: '{name}' must be a table: write [{name}]")
        for key in table:
            if key not in known:
                raise ConfigurationError(f"{path}: unknown key {name}.{key}; the nearest is {_nearest(key, known)}")
    return {key: _as_text(value, f"{path}: {kind.table}.{key}") for key, value in document.get(kind.table, {}).items()}


def _as_text(value: object, where: str) -> str:
    """TOML values go through the same parsers as flags; a replica may be a table of its parts."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list):
        return ",".join(_as_text(each, where) for each in value)
    if isinstance(value, dict) and isinstance(value.get("url"), str):
        return ";".join([value["url"], *(f"{key}={each}" for key, each in value.items() if key != "url")])
    raise ConfigurationError(
        f"{where}: expected text, a number, a list, or a replica with its url, found {value!r:.60}"
    )


def _nearest(name: str, known: set[str]) -> str:
    return difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]
