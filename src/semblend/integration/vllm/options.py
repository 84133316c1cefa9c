"""``kv_connector_extra_config`` into typed options: one table of keys, defaults and limits, refused early and by name.

Called once per process by the connector; the reference page is generated from the same table.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

from semblend.errors import ConfigurationError
from semblend.plan.gates import Gates

CapturePolicy = Literal["all", "sampled", "hinted"]

# Measured on the CPU backend; see the results of the quality bench before changing them.
DEFAULT_GATES: Final = Gates(boundary_recompute_tokens=64, max_context_share=0.35)


@dataclass(frozen=True, slots=True)
class ConnectorOptions:
    """What a deployment may choose. Every field but ``gates`` is a key; the gate keys fill ``gates``."""

    host_bytes: int = 2 << 30
    index_bytes: int = 256 << 20
    capture: CapturePolicy = "all"
    capture_share: float = 0.1
    min_capture_tokens: int = 128
    capture_step_tokens: int = 2048
    events: Path | None = None
    require_salt: bool = False
    study: bool = True
    second_sight: bool = True
    recompute_all: bool = False
    gates: Gates = DEFAULT_GATES


@dataclass(frozen=True, slots=True)
class Option:
    """One documented key: ``read`` checks a JSON value and says in a ``ValueError`` what to write instead."""

    name: str
    read: Callable[[Any], Any]
    default: Any
    description: str
    is_gate: bool = False


def _whole(minimum: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("write a whole number, without quotes, decimal point or exponent")
        if value < minimum:
            raise ValueError(f"it is at least {minimum}")
        return value

    return read


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("write a number between 0 and 1, without quotes")
    if not 0.0 <= value <= 1.0:
        raise ValueError("it lies between 0 and 1")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("write true or false, without quotes")
    return value


def _one_of(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError("write one of " + ", ".join(f'"{choice}"' for choice in choices))
        return str(value)

    return read


def _path(value: Any) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ValueError("write the path of a file as a string, or null for no event stream")
    return Path(value)


_DEFAULTS: Final = ConnectorOptions()


def _option(name: str, read: Callable[[Any], Any], description: str) -> Option:
    return Option(name, read, getattr(_DEFAULTS, name), description)


def _gate(name: str, read: Callable[[Any], Any], description: str) -> Option:
    return Option(name, read, getattr(DEFAULT_GATES, name), description, is_gate=True)


OPTIONS: Final = (
    _option("host_bytes", _whole(1 << 20), "Budget of stored donor KV per worker, in bytes."),
    _option("index_bytes", _whole(1 << 20), "Budget of the planner's index, in bytes."),
    _option(
        "capture",
        _one_of("all", "sampled", "hinted"),
        'Which requests become donors: `"all"`, `"sampled"` (a share of them) or `"hinted"` (those that ask for it).',
    ),
    _option("capture_share", _share, 'Share of requests captured under `"sampled"`.'),
    _option("min_capture_tokens", _whole(1), "Shorter prompts never become donors."),
    _option("capture_step_tokens", _whole(1), "Most tokens copied out of the engine's cache per engine step."),
    _option("events", _path, "File the event stream is appended to, one JSON object per line; `null` writes none."),
    _option(
        "require_salt",
        _flag,
        "Decline requests without `cache_salt` as `namespace_unknown` instead of treating them as one tenant.",
    ),
    _option(
        "study",
        _flag,
        "Passages first seen inside a blended request are computed once more, alone, while the engine is idle, "
        "and become a donor.",
    ),
    _option(
        "second_sight",
        _flag,
        "A passage that could not be studied is served cold once when it comes again, "
        "and that request becomes its donor.",
    ),
    _option(
        "recompute_all",
        _flag,
        "Diagnosis: claim as planned but load nothing and compute the whole claim by the sparse forward. "
        "Answers must equal those of cold prefill.",
    ),
    _gate(
        "min_run_tokens",
        _whole(1),
        "Shortest stretch of equal tokens worth loading; below 64 finding it is not guaranteed.",
    ),
    _gate("min_reuse_ratio", _share, "Planned tokens over the tokens the exact prefix does not cover; less declines."),
    _gate(
        "boundary_recompute_tokens",
        _whole(0),
        "First tokens of a run that are computed although they could be loaded; fewer where less context differs.",
    ),
    _gate("max_context_share", _share, "A run whose mean share of differing context is above this is not loaded."),
    _gate("min_prompt_tokens", _whole(1), "Shorter prompts are not looked up at all."),
)
_BY_NAME: Final = {option.name: option for option in OPTIONS}


def parse_options(extra: Mapping[str, Any]) -> ConnectorOptions:
    """The options of a deployment. Anything unknown or out of range stops the start-up with what to write instead."""
    values: dict[str, Any] = {}
    gates: dict[str, Any] = {field.name: getattr(DEFAULT_GATES, field.name) for field in fields(Gates)}
    for name, value in extra.items():
        option = _BY_NAME.get(name)
        if option is None:
            raise ConfigurationError(_unknown(name))
        try:
            checked = option.read(value)
        except ValueError as error:
            raise ConfigurationError(f"kv_connector_extra_config: {name}={_shown(value)}: {error}") from None
        (gates if option.is_gate else values)[name] = checked
    return ConnectorOptions(**values, gates=Gates(**gates))


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(str(name), list(_BY_NAME), n=1, cutoff=0.0)
    return f"kv_connector_extra_config: '{name}' is not an option of SemBlend; the nearest is '{near[0]}'"


def _shown(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)


def reference_table() -> str:
    """The documentation of every key, as Markdown."""
    rows = ["| Key | Default | Description |", "|---|---|---|"]
    rows += [f"| `{option.name}` | `{_shown(option.default)}` | {option.description} |" for option in OPTIONS]
    return "\n".join(rows) + "\n"


assert {option.name for option in OPTIONS if not option.is_gate} == {
    field.name for field in fields(ConnectorOptions) if field.name != "gates"
}
