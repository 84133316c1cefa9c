"""Request and response bodies as pydantic models. Every string, list and number is bounded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from sembase.labels import LABELS

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Label = Annotated[str, Field(json_schema_extra={"enum": list(LABELS)}, max_length=32)]


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


class BlockOut(BaseModel):
    semantic_type: str
    token_count: int


class SimulateRequestOut(BaseModel):
    """TTFT is modelled."""

    request_id: str
    blocks: list[BlockOut]
    hit_blocks: int
    prompt_tokens: int
    hit_tokens: int
    uncached_tokens: int
    modelled_ttft_ms: float


class HealthOut(BaseModel):
    status: Literal["ok"]
    version: str


class ErrorDetail(BaseModel):
    kind: str
    message: str


class ErrorOut(BaseModel):
    error: ErrorDetail
