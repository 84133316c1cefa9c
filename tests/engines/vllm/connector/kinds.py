"""The deployments under test: as few as show every switch, because each takes a minute to start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from scripts.models import known
from tests.engines.vllm.connector.connector_server import OPEN, SHORT, Kind

BYTES_PER_TOKEN: Final = known.SMOLLM2.kv_bytes_per_token(element_bytes=4)

MAIN: Final = "main"

FAULTY: Final = "faulty"
FAULTY_BLOCKS: Final = 12  # few enough that another request's KV is soon in blocks that were given back

CROWDED: Final = "crowded"
CROWDED_HOST_BYTES: Final = 128 << 20
CROWDED_BLOCKS: Final = 32  # fewer than the crowd's long answers need at once

SMALL: Final = "small"  # a store for two donors, hinted only, nothing else holds donors, and no worker class
SMALL_DONOR_TOKENS: Final = 400
SMALL_HOST_BYTES: Final = 2 * SMALL_DONOR_TOKENS * BYTES_PER_TOKEN + (1 << 20)

DISABLED: Final = "disabled"

SUGGESTING: Final = "suggesting"  # the semantic path reports, nothing is planned
SAMPLED_SHARE: Final = 0.5

FRAGMENTS: Final = "fragments"  # the semantic path may add short token-identical pieces

SEGMENTS: Final = "segments"

MEASURED: Final = "measured"  # with answer budgets: of the two classes of moved passages one keeps its answers

QWEN: Final = "qwen"  # the main deployment with other models
GEMMA: Final = "gemma"
EVERY_MODEL: Final = (MAIN, *(pytest.param(name, marks=pytest.mark.more_models) for name in (QWEN, GEMMA)))

SEMANTIC: Final = {
    "SEMBLEND_EMBEDDER": "jaccard",
    "SEMBLEND_MIN_SIMILARITY": "0.3",
    "SEMBLEND_EXACT_MATERIALIZATION_ONLY": "0",
}

KINDS: Final[Mapping[str, Kind]] = {
    MAIN: Kind(OPEN, kv_events=True),
    **{
        name: Kind(OPEN, extra=("--max-model-len", "8192"), kv_events=True, model=model)
        for name, model in ((QWEN, known.QWEN_CODER), (GEMMA, known.GEMMA))
    },
    MEASURED: Kind(
        {
            "answer_budgets": str(Path(__file__).with_name("measured_answers.json")),
            "refresh_on_repeat": False,
            **SHORT,
        }
    ),
    FAULTY: Kind(
        OPEN,
        extra=("--max-model-len", "1024", "--num-gpu-blocks-override", str(FAULTY_BLOCKS)),
        faulty=True,
    ),
    CROWDED: Kind(
        {"host_bytes": CROWDED_HOST_BYTES, **SHORT},
        extra=(
            "--max-model-len",
            "2048",
            "--num-gpu-blocks-override",
            str(CROWDED_BLOCKS),
            "--max-num-batched-tokens",
            "256",
        ),
    ),
    SMALL: Kind({"capture": "hinted", "host_bytes": SMALL_HOST_BYTES, "cached_donors": False, **SHORT}, worker=False),
    DISABLED: Kind(environment={"SEMBLEND_ENABLED": "0"}),
    SUGGESTING: Kind(
        {"capture": "sampled", "capture_fraction": SAMPLED_SHARE, **SHORT},
        environment={**SEMANTIC, "SEMBLEND_DISCOVERY_ONLY": "1"},
    ),
    # Without boundary recompute: most of a short fragment would be recomputed, and what is left not worth loading.
    FRAGMENTS: Kind({"boundary_recompute_tokens": 0, **SHORT}, environment={**SEMANTIC, "SEMBLEND_FUZZY_CHUNKS": "1"}),
    SEGMENTS: Kind(
        SHORT,
        environment={**SEMANTIC, "SEMBLEND_MIN_SIMILARITY": "1.0", "SEMBLEND_STRICT_PREFIX_BOUNDARY": "0"},
        dtype="auto",  # the model's own, bfloat16
    ),
}
