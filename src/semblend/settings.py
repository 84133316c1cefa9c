"""The only module of this package that reads the environment. The reference page is generated from this table."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError

PREFIX: Final = "SEMBLEND_"
NATS: Final = "nats://"


@dataclass(frozen=True, slots=True)
class Variable:
    """One documented environment variable and the setting it fills."""

    name: str
    field: str
    parse: Callable[[str], Any]
    default: str
    description: str


def _flag(text: str) -> bool:
    value = text.strip().lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise ValueError("use 1 or 0")


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise ValueError("must lie between 0 and 1")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("must be at least 1")
    return value


def _endpoint(text: str) -> str:
    endpoint = text.strip()
    is_numbered = endpoint.startswith(("tcp://", NATS)) and endpoint.rpartition(":")[2].isdecimal()
    if endpoint and not is_numbered and not endpoint.startswith("ipc://"):
        raise ValueError("write tcp://ADDRESS:PORT or nats://HOST:PORT with a number as port, or ipc://FILE")
    return endpoint


def _worker(text: str) -> int | None:
    if not text.strip():
        return None
    value = int(text)
    if not 0 <= value < 2**64:
        raise ValueError("must be a number of at most 64 bits")
    return value


def _path(text: str) -> Path | None:
    return Path(text.strip()) if text.strip() else None


def _name(text: str) -> str:
    return text.strip().lower().replace("-", "_")


VARIABLES: Final = (
    Variable(
        "SEMBLEND_ENABLED",
        "enabled",
        _flag,
        "1",
        "Search for donors at all. 0 declines every look-up as `disabled`.",
    ),
    Variable(
        "SEMBLEND_MIN_SIMILARITY",
        "min_similarity",
        _share,
        "0.60",
        "Cosine similarity a window of a donor must reach before the semantic path considers it. "
        "Only suggests, never authorises.",
    ),
    Variable(
        "SEMBLEND_EMBEDDER",
        "embedder",
        _name,
        "minilm",
        "Embedder of the semantic path: `none`, `jaccard`, `minilm`, `onnx_gpu`. "
        "If its packages or weights are missing, the token path works alone and says so once.",
    ),
    Variable(
        "SEMBLEND_FUZZY_CHUNKS",
        "fuzzy_chunks",
        _flag,
        "0",
        "Align chunks whose tokens mostly agree although their boundaries moved (semantic candidates only).",
    ),
    Variable(
        "SEMBLEND_DISCOVERY_ONLY",
        "discovery_only",
        _flag,
        "0",
        "Search and report, never return a plan: every find is declined as `discovery_only`, with its discoveries.",
    ),
    Variable(
        "SEMBLEND_STRICT_PREFIX_BOUNDARY",
        "strict_prefix_boundary",
        _flag,
        "1",
        "Claim one contiguous range from the exact prefix on, its holes to be computed by the adapter. "
        "0 claims the runs alone and leaves the holes to a backend that loads segments.",
    ),
    Variable(
        "SEMBLEND_EXACT_MATERIALIZATION_ONLY",
        "exact_materialization_only",
        _flag,
        "1",
        "Plan only runs of at least the minimum length. 0 also plans the shorter token-identical fragments that "
        "approximate alignment finds. Tokens that differ are never planned.",
    ),
    Variable(
        "SEMBLEND_DONOR_EVENTS",
        "donor_events",
        _endpoint,
        "",
        "ZeroMQ endpoint, such as `tcp://*:5657`, where routers hear of donors (`semantic-kv-events`); on the "
        "port above it routers ask for what they missed. Empty announces nothing. With data parallelism each rank "
        "takes the next two ports. Or a NATS server, such as `nats://127.0.0.1:4222` (extra `dynamo`).",
    ),
    Variable(
        "SEMBLEND_DONOR_EVENTS_WORKER",
        "donor_events_worker",
        _worker,
        "",
        "The number by which routers on NATS know this engine: in Dynamo its worker's instance id. Needed with "
        "`nats://`, and of no use without.",
    ),
    Variable(
        "SEMBLEND_DONOR_EVENTS_KEY_FILE",
        "donor_events_key_file",
        _path,
        "",
        "File with the key (16 bytes or more) that engines and routers share: tenants and content leave the engine "
        "as digests under it. Needed when donors are announced.",
    ),
    Variable(
        "SEMBLEND_DONOR_EVENTS_BUFFER",
        "donor_events_buffer",
        _count,
        "10000",
        "Announcements kept for those who missed them; who missed more is told of all living donors again.",
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may switch from outside. Gates that are measured per model live in ``semblend.plan``."""

    enabled: bool = True
    min_similarity: float = 0.60
    embedder: str = "minilm"
    fuzzy_chunks: bool = False
    discovery_only: bool = False
    strict_prefix_boundary: bool = True
    exact_materialization_only: bool = True
    donor_events: str = ""
    donor_events_worker: int | None = None
    donor_events_key_file: Path | None = None
    donor_events_buffer: int = 10_000

    def __post_init__(self) -> None:
        if not 0.0 <= self.min_similarity <= 1.0:
            raise ConfigurationError(f"min_similarity {self.min_similarity} does not lie between 0 and 1")
        if self.donor_events and self.donor_events_key_file is None:
            raise ConfigurationError(
                "SEMBLEND_DONOR_EVENTS is set and SEMBLEND_DONOR_EVENTS_KEY_FILE is not; write a secret of 16 bytes or "
                "more to a file, for instance `openssl rand -hex 32`, and give it to engines and routers alike"
            )
        if self.donor_events.startswith(NATS) and self.donor_events_worker is None:
            raise ConfigurationError(
                "SEMBLEND_DONOR_EVENTS names a NATS server and SEMBLEND_DONOR_EVENTS_WORKER is not set; give it the "
                "number by which the router knows this engine, in Dynamo its worker's instance id"
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        source = os.environ if environment is None else environment
        _warn_of_unknown(source)
        values: dict[str, Any] = {}
        for variable in VARIABLES:
            text = source.get(variable.name, variable.default)
            try:
                values[variable.field] = variable.parse(text)
            except ValueError as error:
                raise ConfigurationError(f"{variable.name}={text!r}: {error}") from None
        return cls(**values)


def _warn_of_unknown(source: Mapping[str, str]) -> None:
    known = [variable.name for variable in VARIABLES]
    for name in source:
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            warnings.warn(f"{name} is not a setting of semblend; the nearest is {near[0]}", stacklevel=3)


def reference_table() -> str:
    """The documentation of every variable, as Markdown."""
    rows = ["| Variable | Default | Description |", "|---|---|---|"]
    rows += [f"| `{v.name}` | `{v.default}` | {v.description} |" for v in VARIABLES]
    return "\n".join(rows) + "\n"


assert {v.field for v in VARIABLES} == {f.name for f in fields(Settings)}
