"""The only module of semgate that reads the environment: flags > environment > one TOML file > defaults.

In: flags as text, the environment, ``[proxy]``, ``[router]`` or ``[picker]`` of the TOML file; out: immutable settings.
Unknown names are refused with the nearest known one, removed ones with what replaced them. The reference pages and the
flags are made from the same fields.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from sembase.errors import ConfigurationError
from sembase.settings import nearest, read_settings, rows_of
from semgate.setting_fields import DEFAULT_PATHS, KINDS, PickerSettings, ProxySettings, RouterSettings, ServerSettings

__all__ = [
    "CONFIG_VARIABLE",
    "DEFAULT_PATHS",
    "KINDS",
    "PickerSettings",
    "ProxySettings",
    "RouterSettings",
    "ServerSettings",
    "config_path",
    "load",
]

CONFIG_VARIABLE: Final = "SEMGATE_CONFIG"
_PREFIXES: Final = ("SEMGATE_", "SEMANTICKV_")
_SERVICE_LINK: Final = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT_\d+_(TCP|UDP|SCTP)(_|$)")

S = TypeVar("S", bound=ServerSettings)


def load(
    kind: type[S],
    flags: Mapping[str, str | None] | None = None,
    environment: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> S:
    """The settings of one command; ``flags`` maps field names to text, None where the flag was not given."""
    environment = os.environ if environment is None else environment
    _refuse_unknown_variables(environment)
    config = config_path(config, environment)
    document = _tables(config).get(kind.table, {}) if config is not None else {}
    where = f"{config}: {kind.table}"
    return read_settings(kind, flags=flags, environment=environment, document=document, where=where)


def config_path(given: Path | None, environment: Mapping[str, str] | None = None) -> Path | None:
    """The TOML file in use: the flag's, or the environment's."""
    named = (os.environ if environment is None else environment).get(CONFIG_VARIABLE)
    return given or (Path(named) if named else None)


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    rows = [row for kind in KINDS for row in rows_of(kind)]
    known = {CONFIG_VARIABLE, *(row.variable for row in rows)}
    removed = {kind.environment_prefix + key.upper(): why for kind in KINDS for key, why in kind.removed.items()}
    for name, value in environment.items():
        if name.startswith(_PREFIXES) and name not in known and not _is_service_link(name, value):
            if name in removed:
                raise ConfigurationError(f"{name} was removed; {removed[name]}")
            near = nearest(name, known)
            raise ConfigurationError(f"{name} is not a setting of semgate; the nearest is {near}")


def _is_service_link(name: str, value: str) -> bool:
    """Kubernetes sets SEMGATE_ROUTER_SERVICE_HOST and the like in pods whose namespace has a service of that name."""
    return value.startswith(("tcp://", "udp://", "sctp://")) or _SERVICE_LINK.search(name) is not None


def _tables(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of the TOML file; unknown tables and keys are refused, also in the other command's table."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}; check --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: is not TOML: {error}") from None
    rows = {kind.table: rows_of(kind) for kind in KINDS}
    removed = {kind.table: kind.removed for kind in KINDS}
    for name, table in document.items():
        if name not in rows:
            raise ConfigurationError(f"{path}: unknown table [{name}]; known: [proxy], [router] and [picker]")
        if not isinstance(table, dict):
            raise ConfigurationError(f"{path}: '{name}' must be a table: write [{name}]")
        known = {row.name for row in rows[name]}
        for key in table:
            if key not in known:
                if key in removed[name]:
                    raise ConfigurationError(f"{path}: {name}.{key} was removed; {removed[name][key]}")
                near = nearest(key, known)
                raise ConfigurationError(f"{path}: unknown key {name}.{key}; the nearest is {near}")
    return document
