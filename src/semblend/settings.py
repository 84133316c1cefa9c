"""The only module of this package that reads the environment. The reference page is generated from its fields."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from sembase.errors import ConfigurationError
from sembase.settings import nearest, read_settings, rows_of, setting
from sembase.values import Parser, flag, fraction, name, optional, path, positive


def _check_endpoint(value: Any) -> str:
    endpoint = str(value).strip()
    is_numbered = endpoint.startswith("tcp://") and endpoint.rpartition(":")[2].isdecimal()
    if endpoint and not is_numbered and not endpoint.startswith("ipc://"):
        raise ValueError
    return endpoint


_endpoint: Final = Parser("tcp://ADDRESS:PORT with a number as port, or ipc://FILE", str, _check_endpoint)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may switch from outside. Gates that are measured per model live in ``semblend.plan``."""

    environment_prefix: ClassVar[str] = "SEMBLEND_"

    enabled: bool = setting(True, flag, "Search for donors. 0 declines every look-up as `disabled`.")
    min_similarity: float = setting(
        0.60,
        fraction,
        "Minimum cosine similarity of a donor's window for the semantic path to consider the donor. Similarity only "
        "suggests donors; it never authorises reuse.",
    )
    embedder: str = setting(
        "auto",
        name,
        "Embedder of the semantic path: `none`, `jaccard`, `minilm`, `onnx_gpu`; `auto` is `minilm` where its packages "
        "and weights are installed and `none` elsewhere. If those of a named embedder are missing, only the token path "
        "is used, and a warning says so once.",
    )
    fuzzy_chunks: bool = setting(
        False,
        flag,
        "Align chunks whose tokens mostly agree although their boundaries moved (semantic candidates only).",
    )
    discovery_only: bool = setting(
        False,
        flag,
        "Search and report, but never return a plan. Every match is declined as `discovery_only`, with its "
        "discoveries.",
    )
    strict_prefix_boundary: bool = setting(
        True,
        flag,
        "Claim one contiguous range that starts at the exact prefix; the adapter computes its gaps. "
        "0 claims only the runs and leaves the gaps to a backend that loads segments.",
    )
    exact_materialization_only: bool = setting(
        True,
        flag,
        "Plan only runs of at least the minimum length. 0 also plans the shorter token-identical fragments that "
        "approximate alignment finds. Tokens that differ are never planned.",
    )
    donor_events: str = setting(
        "",
        _endpoint,
        "ZeroMQ endpoint, such as `tcp://*:5657`, on which donors are announced to routers (`semantic-kv-events`). "
        "Routers request missed announcements on the next port. With data parallelism each rank takes the next two "
        "ports. Empty announces nothing.",
    )
    donor_events_key_file: Path | None = setting(
        None,
        optional(path),
        "File with the key (16 bytes or more) that engines and routers share. Tenants and content leave the engine "
        "only as digests under this key. Required if donors are announced.",
    )
    donor_events_curve_key_file: Path | None = setting(
        None,
        optional(path),
        "Secret CURVE certificate (`*.key_secret` of `zmq.auth.create_certificates`) of this engine: donors are "
        "announced encrypted, to routers that know its public one.",
    )
    donor_events_curve_clients: Path | None = setting(
        None,
        optional(path),
        "Folder of public CURVE certificates (`*.key`) of the routers that may subscribe. None admits every router "
        "that knows this engine's public certificate.",
    )
    donor_events_buffer: int = setting(
        10_000,
        positive,
        "Number of announcements kept for routers that missed some. A router that missed more receives all current "
        "donors again.",
    )

    def __post_init__(self) -> None:
        if not 0.0 <= self.min_similarity <= 1.0:
            raise ConfigurationError(f"min_similarity {self.min_similarity} is not between 0 and 1")
        if self.donor_events and self.donor_events_key_file is None:
            raise ConfigurationError(
                "SEMBLEND_DONOR_EVENTS is set but SEMBLEND_DONOR_EVENTS_KEY_FILE is not; write a secret of 16 bytes or "
                "more to a file, for instance `openssl rand -hex 32`, and set the variable on engines and routers"
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        source = os.environ if environment is None else environment
        _warn_of_unknown(source)
        return read_settings(cls, environment=source)


def as_environment(**values: str) -> dict[str, str]:
    """Variables that give these settings these values, for a process that is started from here."""
    variables = {row.name: row.variable for row in rows_of(Settings)}
    return {variables[name]: value for name, value in values.items()}


def _warn_of_unknown(source: Mapping[str, str]) -> None:
    rows = rows_of(Settings)
    known = {row.variable for row in rows}
    for given in source:
        if given.startswith(Settings.environment_prefix) and given not in known:
            near = nearest(given, known)
            warnings.warn(f"{given} is not a setting of semblend; the nearest is {near}", stacklevel=3)
