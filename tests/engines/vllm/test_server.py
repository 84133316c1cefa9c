"""The stock engine that the other engine tests rely on: it serves a real model, and its exact cache works.

Greedy answers of a small bfloat16 model turn on near-ties, which a prefix hit alone can tip. These questions were
chosen for their margins: the second-best token is more than one nat away at every step.
"""

from __future__ import annotations

import os
import urllib.request

import pytest
from scripts.engines.chat import Answer, ask
from scripts.engines.server import EngineServer
from scripts.engines.specs import SERVED_NAME

pytestmark = [pytest.mark.engine, pytest.mark.slow]

BLOCK_TOKENS = 128  # what the CPU backend uses unless told otherwise
NOTES = "\n".join(f"Note {n}: parcel {n * 37 % 101} went to locker {n * 17 % 53}." for n in range(60))


def test_it_is_healthy_in_a_group_of_its_own(vllm_server: EngineServer) -> None:
    assert vllm_server.stays_healthy()
    assert os.getpgid(vllm_server.pid) == vllm_server.pid != os.getpgrp()
    assert "Starting vLLM server" in vllm_server.log_path.read_text(encoding="utf-8", errors="replace")


def test_it_answers_sensibly(vllm_server: EngineServer) -> None:
    answer = ask(vllm_server.base_url, "Complete the sentence: The capital of France is", model=SERVED_NAME)
    assert "Paris" in answer.text
    assert 0 < answer.first_token_s <= answer.total_s


def test_the_same_prompt_again_comes_from_the_exact_cache_until_it_is_reset(vllm_server: EngineServer) -> None:
    reset_prefix_cache(vllm_server)
    cold, again = ask_about_notes(vllm_server), ask_about_notes(vllm_server)
    assert cold.cached_tokens in (0, None)
    assert again.cached_tokens == (again.prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS > 0
    assert "Paris" in cold.text
    assert again.text == cold.text
    reset_prefix_cache(vllm_server)
    assert ask_about_notes(vllm_server).cached_tokens in (0, None)


def ask_about_notes(server: EngineServer) -> Answer:
    return ask(server.base_url, "What is the capital of France?", system=NOTES, model=SERVED_NAME)


def reset_prefix_cache(server: EngineServer) -> None:
    request = urllib.request.Request(f"{server.base_url}/reset_prefix_cache", method="POST")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=300) as answer:
        assert answer.status == 200
