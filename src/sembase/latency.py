"""The latency model: coefficients in, modelled time to first token out, and the calibration file that stores them.

For a request alone on the server:
``ttft = base + step + token * uncached + pair * attended pairs + cached * hit tokens + block * loaded blocks``.
A model, calibrated or not, never a measurement. The simulator adds queueing; the router prices placements with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sembase.errors import ConfigurationError, ContractError

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.float64] | npt.NDArray[np.int64] | npt.NDArray[np.int32]
CALIBRATION_SCHEMA: Final = "semantic_kv.calibration.v1"
PAIRS_PER_UNIT: Final = 1e6
Source = Literal["default", "given", "calibrated"]


@dataclass(frozen=True, slots=True)
class Engine:
    """Limits of the modelled engine: tokens per pass (``max_num_batched_tokens``) and concurrent requests."""

    pass_tokens: int = 2_048
    slots: int = 256

    def __post_init__(self) -> None:
        if self.pass_tokens < 1 or not 1 <= self.slots <= 65_536:
            raise ContractError("an engine needs pass_tokens >= 1 and 1 to 65,536 slots")


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """All coefficients are milliseconds and >= 0. The defaults are those the published stress figures were made with.

    ``ms_per_million_pairs`` prices attention: every uncached token attends to every token before it, so the term grows
    with the square of an uncached context and with the product of a new part and the cached part in front of it.
    ``step_ms`` is the fixed cost of one engine pass, ``ms_per_decoding_stream`` what each decoding stream adds to a
    pass; together they price decoding.
    """

    base_ms: float = 80.0
    ms_per_uncached_token: float = 0.08
    ms_per_million_pairs: float = 0.0
    ms_per_cached_token: float = 0.0
    ms_per_loaded_block: float = 0.0
    step_ms: float = 0.0
    ms_per_decoding_stream: float = 0.0
    source: Source = "default"

    def __post_init__(self) -> None:
        for name in COEFFICIENTS:
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0.0:
                raise ContractError(f"latency coefficient {name} is {value}; it must be a finite number >= 0")

    def prefill_ms(self, uncached_tokens: Numbers, cached_tokens: Numbers) -> Floats:
        """Time the server computes until the first token, per request, without ``base_ms`` and without waiting."""
        uncached = np.asarray(uncached_tokens, dtype=np.float64)
        cached = np.asarray(cached_tokens, dtype=np.float64)
        pairs = attended_pairs(uncached, cached) / PAIRS_PER_UNIT
        return (
            self.step_ms
            + self.ms_per_uncached_token * uncached
            + self.ms_per_million_pairs * pairs
            + self.ms_per_cached_token * cached
        )

    def ttft_ms(
        self, uncached_tokens: Numbers, cached_tokens: Numbers, *, loaded_blocks: Numbers | None = None
    ) -> Floats:
        """Modelled TTFT of requests served alone."""
        total = self.base_ms + self.prefill_ms(uncached_tokens, cached_tokens)
        if loaded_blocks is not None:
            total = total + self.ms_per_loaded_block * np.asarray(loaded_blocks, dtype=np.float64)
        return total

    def ttft_sum_ms(self, requests: int, uncached_tokens: int, cached_tokens: int, pairs: float | None) -> float | None:
        """Summed TTFT of requests served alone, computed from summed counts: equal counts give exactly equal figures.

        ``pairs`` None means unknown; the result is then None if the model prices pairs.
        """
        if pairs is None and self.ms_per_million_pairs > 0.0:
            return None
        return (
            (self.base_ms + self.step_ms) * requests
            + self.ms_per_uncached_token * uncached_tokens
            + self.ms_per_million_pairs * ((pairs or 0.0) / PAIRS_PER_UNIT)
            + self.ms_per_cached_token * cached_tokens
        )

    def decode_ms(self, output_tokens: Numbers, streams: float = 1.0) -> Floats:
        """Time from the first token to the last with ``streams`` decoding together; one token needs none."""
        steps = np.maximum(np.asarray(output_tokens, dtype=np.float64) - 1.0, 0.0)
        return steps * (self.step_ms + self.ms_per_decoding_stream * streams)

    def as_record(self) -> dict[str, float | str]:
        return asdict(self)


COEFFICIENTS: Final = tuple(field.name for field in fields(LatencyModel) if field.name != "source")


def latency_model_from_record(record: Mapping[str, Any]) -> LatencyModel:
    """The inverse of ``as_record``. Unknown keys are refused: a misspelt coefficient must not become a default."""
    unknown = sorted(set(record) - {*COEFFICIENTS, "source"})
    if unknown:
        raise ContractError(f"unknown latency coefficient '{unknown[0]}'; known: {', '.join(COEFFICIENTS)}")
    values: dict[str, float] = {}
    for name in COEFFICIENTS:
        value = record.get(name, 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ContractError(f"latency coefficient {name} is {value!r}; it must be a number")
        values[name] = float(value)
    if "base_ms" not in record or "ms_per_uncached_token" not in record:
        raise ContractError("a latency model needs at least base_ms and ms_per_uncached_token")
    source = record.get("source", "given")
    if source not in ("default", "given", "calibrated"):
        raise ContractError(f"the source of a latency model must be default, given or calibrated, not {source!r}")
    return LatencyModel(**values, source=source)


def attended_pairs(uncached_tokens: Numbers, cached_tokens: Numbers) -> Floats:
    """Number of (query, key) pairs a prefill computes: each new token attends to all tokens before it and to itself."""
    uncached = np.asarray(uncached_tokens, dtype=np.float64)
    return uncached * np.asarray(cached_tokens, dtype=np.float64) + uncached * (uncached + 1.0) / 2.0


def read_latency_model(path: Path) -> tuple[LatencyModel, Engine | None]:
    """Read a calibration file: its latency model, and the engine limits it was fitted with (None without a queue)."""
    try:
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise ContractError(
            f"{path.name} is not JSON; pass the calibration.json of kvmend simulate calibrate"
        ) from None
    if (
        not isinstance(record, dict)
        or record.get("schema") != CALIBRATION_SCHEMA
        or not isinstance(record.get("model"), dict)
    ):
        raise ContractError(
            f"{path.name} is not a {CALIBRATION_SCHEMA} file; pass the calibration.json of kvmend simulate calibrate"
        )
    engine = record.get("engine")
    if engine is None:
        return latency_model_from_record(record["model"]), None
    try:
        limits = Engine(int(engine["pass_tokens"]), int(engine["slots"]))
    except (KeyError, TypeError, ValueError):
        raise ContractError(f"{path.name}: 'engine' needs pass_tokens and slots") from None
    return latency_model_from_record(record["model"]), limits
