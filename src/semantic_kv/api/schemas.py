"""Request and response bodies as pydantic models. Every string, list and number is bounded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from semantic_kv.cache.result import CacheModel, Unit
from semantic_kv.policy.registry import ADMISSION, EVICTION
from semantic_kv.workload import BASIC, STRESS
from sembase.labels import LABELS


def _whole(value: object) -> object:
    """JSON 3.0 is an integer; strings and booleans are not."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = BeforeValidator(_whole)
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Known = StringConstraints(pattern="^[a-z0-9_]{1,64}$")
Eviction = Annotated[str, Known, Field(json_schema_extra={"enum": list(EVICTION.names())})]
Admission = Annotated[str, Known, Field(json_schema_extra={"enum": list(ADMISSION.names())})]
Experiment = Annotated[str, Known, Field(json_schema_extra={"enum": [*STRESS, *BASIC]})]
Label = Annotated[str, Field(json_schema_extra={"enum": list(LABELS)}, max_length=32)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000), Whole]
Capacity = Annotated[int, Field(ge=1, le=1_000_000_000), Whole]


class Strict(BaseModel):
    """Unknown keys are rejected, so a misspelt key is not ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class MessageIn(Strict):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[str, Field(max_length=2_000_000, pattern=r"\S")]
    semantic_type: Label | None = None


class SimulateRequestIn(Strict):
    messages: Annotated[list[MessageIn], Field(min_length=1, max_length=512)]
    request_id: Name = "request"
    session_id: Name | None = None
    tenant_id: Name | None = None


class ResetIn(Strict):
    """``{}``: a web page can make a browser send a request without a body, but not this one."""


class BlockOut(BaseModel):
    semantic_type: str
    token_count: int


class SimulateRequestOut(BaseModel):
    """Times are modelled. ``epoch`` counts the restarts of the cache, each with an empty cache."""

    request_id: str
    epoch: int
    blocks: list[BlockOut]
    hit_blocks: int
    prompt_tokens: int
    hit_tokens: int
    uncached_tokens: int
    modelled_ttft_ms: float


class BlockIn(Strict):
    semantic_type: Label
    token_count: Tokens
    content_hash: Name


class TraceRequestIn(Strict):
    request_id: Name
    timestamp_ms: Annotated[float, Field(ge=0, le=1e15)]
    blocks: Annotated[list[BlockIn], Field(min_length=1, max_length=4_096)]
    session_id: Name | None = None
    tenant_id: Name | None = None


class PolicyIn(Strict):
    evict: Eviction = "lru"
    admit: Admission = "always"


class SimulateTraceIn(Strict):
    requests: Annotated[list[TraceRequestIn], Field(min_length=1, max_length=2_000)]
    policies: Annotated[list[PolicyIn], Field(min_length=1, max_length=8)] = [PolicyIn()]
    capacity: Capacity
    unit: Unit = "tokens"
    model: CacheModel = "prefix_tree"


class PolicyFigures(BaseModel):
    """Hit ratio is ``hit_blocks / references``. TTFT is modelled for each request alone on the server."""

    evict: str
    admit: str
    model: str
    references: int
    hit_blocks: int
    hit_ratio: float
    prompt_tokens: int
    hit_tokens: int
    admitted: int
    refused: int
    evicted: int
    modelled_ttft_mean_ms: float
    modelled_ttft_p95_ms: float


class FiguresOut(BaseModel):
    """Sorted by modelled TTFT, best first. ``verdict`` names the winner, also when it is LRU."""

    trace: str
    requests: int
    capacity: int
    unit: str
    verdict: str
    policies: list[PolicyFigures]


class ExperimentIn(Strict):
    name: Experiment
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), Whole] | None = None
    policies: Annotated[list[PolicyIn], Field(min_length=1, max_length=8)] | None = None
    model: CacheModel = "prefix_tree"


class HealthOut(BaseModel):
    status: Literal["ok"]
    version: str


class PoliciesOut(BaseModel):
    eviction: list[str]
    admission: list[str]
    experiments: list[str]


class CacheStateOut(BaseModel):
    """What is simulated and how full it is. ``used`` is in ``unit``."""

    epoch: int
    evict: str
    admit: str
    model: str
    unit: str
    capacity: int
    used: int
    resident_blocks: int
    known_blocks: int
    requests: int
    latency: dict[str, Any]


class LabelCounts(BaseModel):
    references: int
    hits: int
    evictions: int


class MetricsOut(BaseModel):
    """Totals of the current epoch. ``hit_ratio`` is None before the first request, not 0."""

    epoch: int
    requests: int
    references: int
    hit_blocks: int
    hit_ratio: float | None
    prompt_tokens: int
    hit_tokens: int
    admitted: int
    refused: int
    evicted: int
    by_label: dict[str, LabelCounts]


class EpochOut(BaseModel):
    epoch: int


class ErrorDetail(BaseModel):
    kind: str
    message: str


class ErrorOut(BaseModel):
    error: ErrorDetail
