"""Random schedules on the engine's own scheduler, allocator and radix tree, with repair on; a tiny random model.

Run by the engine's interpreter: number of schedules and policy in, one line of JSON out. After every idle step all KV
in the tree is compared with that of cold prefill. Requests continue sessions, break them, are aborted, and fill the
pool; the cache is flushed, and slices fail. ``--plant`` lets inexact KV into the tree, which must be noticed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from array import array
from importlib import import_module
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.engines.sglang.inside import FLAGS, engine_module, import_engine, start_scheduler, write_model

POOL_TOKENS: Final = 2048
MAX_PROMPT: Final = 900
STEPS: Final = 400  # of one schedule; more means that it does not come to an end
ROUNDING: Final = 1e-3  # cold prefill in other pieces; KV of another context differs by more than 0.1
OPTIONS: Final = {
    "min_reuse_ratio": 0.0,
    "max_context_share": 1.0,
    "min_inexact_tokens": 0,
    "boundary_recompute_tokens": 0,
    "min_run_tokens": 32,
    "min_donor_tokens": 32,
    "refresh_on_repeat": False,
}


class InexactError(Exception):
    """The tree holds KV that cold prefill would not give."""


class Inside:
    """One scheduler, driven step by step as its own loop does."""

    def __init__(self, folder: Path, policy: str) -> None:
        from tests.engines.model_matrix.variants import by_name
        from tests.engines.model_matrix.weights import fill_randomly

        variant = by_name("llama")
        write_model(folder, variant.model_type, variant.architecture, variant.settings, dtype="float32")
        os.environ["SGLANG_SEMBLEND_OPTIONS"] = json.dumps({**OPTIONS, "repair": policy})
        os.environ["SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE"] = "1"
        flags = ["--model-path", str(folder), *FLAGS, "--dtype", "float32", "--disable-overlap-schedule"]
        self.scheduler = start_scheduler([*flags, "--max-total-tokens", str(POOL_TOKENS)], fill_randomly)
        channels = self.scheduler.ipc_channels
        channels.send_to_tokenizer.socket = channels.send_to_detokenizer.socket = None  # no process reads them
        self.cache = self.scheduler.tree_cache
        self.vocabulary = self.scheduler.model_config.vocab_size
        self.oracle = Oracle(self.scheduler.tp_worker.model_runner, self.cache)
        self.requests: dict[str, Any] = {}
        self.serial = 0
        counted = ("requests", "blended", "aborted", "flushed", "faults", "slices", "busy_slices", "repaired")
        self.figures = dict.fromkeys(counted, 0)
        self.fails_next = False
        self._fail_slices()
        self.repairs = repairs = self.cache._parts.repairs
        on_slice, on_repaired = repairs._on_slice, repairs._on_repaired

        def sliced(tokens: int, seconds: float) -> None:
            self.figures["slices"] += 1
            self.figures["busy_slices"] += not self.scheduler.is_fully_idle()
            on_slice(tokens, seconds)

        def repaired(job: Any) -> None:
            self.figures["repaired"] += 1
            on_repaired(job)

        repairs._on_slice, repairs._on_repaired = sliced, repaired

    def ask(self, prompt: list[int], answer: int) -> str:
        structs = engine_module("managers.io_struct")
        sampling = engine_module("sampling.sampling_params").SamplingParams(
            max_new_tokens=answer, temperature=0.0, ignore_eos=True
        )
        sampling.normalize(None)
        self.serial += 1
        rid = f"r{self.serial}"
        self.scheduler.handle_generate_request(
            structs.TokenizedGenerateReqInput(
                rid=rid,
                input_text=None,
                input_ids=array("q", prompt),
                input_embeds=None,
                mm_inputs=None,
                token_type_ids=None,
                sampling_params=sampling,
                return_logprob=False,
                logprob_start_len=-1,
                top_logprobs_num=0,
                token_ids_logprob=None,
                stream=False,
            )
        )
        self.requests[rid] = self.scheduler.waiting_queue[-1]
        self.figures["requests"] += 1
        return rid

    def step(self) -> bool:
        """One round of the engine's loop. Returns whether a batch ran."""
        own = self.scheduler
        plan = own.get_next_batch_to_run(running_batch=own.running_batch, last_batch=own.last_batch)
        own.running_batch, batch = plan.running_batch, plan.batch_to_run
        if batch:
            result = own.run_batch(batch)
            self._count(batch)
            own.process_batch_result(batch, result)
        else:
            own._sched_idled = True
            own.on_idle()
            self.oracle.check()
        own.last_batch = batch
        return bool(batch)

    def _count(self, batch: Any) -> None:
        tracker = self.cache._parts.tracker
        for req in batch.reqs:
            record = tracker.of(req)
            if record is not None and record.is_blended and not getattr(req, "was_counted", False):
                req.was_counted = True
                self.figures["blended"] += 1

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def drain(self) -> None:
        """Until nothing runs and nothing is to be repaired."""
        for _ in range(STEPS):
            if not self.step() and self.scheduler.is_fully_idle() and not len(self.repairs):
                return
        raise RuntimeError(f"not idle after {STEPS} steps, {len(self.repairs)} repairs left")

    def abort(self, rid: str) -> None:
        self.scheduler.abort_request(engine_module("managers.io_struct").AbortReq(rid=rid))
        self.figures["aborted"] += 1

    def flush(self) -> None:
        """Refused by the engine while a request runs."""
        if self.scheduler.flush_cache():
            self.figures["flushed"] += 1
            self.oracle.forget()

    def cached_tokens(self, rid: str) -> int:
        return int(self.requests[rid].cached_tokens)

    def _fail_slices(self) -> None:
        """While ``fails_next`` is set, the next slice fails half-way: K and V are written, then an error is raised."""
        prefill: Any = self.cache._parts.prefill
        compute = prefill.compute

        def computing(*given: Any, **named: Any) -> Any:
            output = compute(*given, **named)
            if self.fails_next:
                self.fails_next = False
                self.figures["faults"] += 1
                raise RuntimeError("planted")
            return output

        prefill.compute = computing


class Oracle:
    """Every page of the tree against cold prefill of its tokens, computed in slots whose content is put back."""

    def __init__(self, runner: Any, cache: Any) -> None:
        from semblend.integration.sglang.prefill import Prefill

        self._prefill, self._cache = Prefill(runner), cache
        self._pool = cache.token_to_kv_pool_allocator.get_kvcache()
        self._inserted: dict[bytes, None] = {}
        self._cold: dict[bytes, Any] = {}
        self._seen: set[tuple[bytes, bytes]] = set()
        self.pages = 0
        self.largest = 0.0
        self._path_to = import_module("semblend.integration.sglang.donor_places").path_to
        insert = cache.insert

        def inserting(params: Any) -> Any:
            self._inserted[array("q", params.key.raw_token_ids()).tobytes()] = None
            return insert(params)

        cache.insert = inserting

    def forget(self) -> None:
        self._inserted.clear()
        self._seen.clear()

    def check(self) -> None:
        """Pages whose slots were compared under the same tokens before are not compared again."""
        matching, keys = engine_module("mem_cache.base_prefix_cache"), engine_module("mem_cache.radix_cache")
        page = self._cache.page_size
        for ids in list(self._inserted):
            key = keys.RadixKey(array("q", ids))
            found = self._cache._match_tree(matching.MatchPrefixParams(key=key))
            length = found.device_prefix_len
            if not length:
                del self._inserted[ids]
                continue
            path = self._path_to(self._cache, found.last_device_node, None)[:length]
            name = (ids[: length * 8], path.numpy().tobytes())
            if name in self._seen:
                continue
            self._seen.add(name)
            difference = self._difference(ids[: length * 8], path)
            self.pages += length // page
            self.largest = max(self.largest, difference)
            if not difference <= ROUNDING:
                raise InexactError(f"{difference:.3g} in {length} tokens")

    def _difference(self, ids: bytes, path: Any) -> float:
        cold = self._cold_of(ids)
        length = len(path)
        own = [buffer[path] for buffer in (*self._pool.k_buffer, *self._pool.v_buffer)]
        return max(float((one - other[:length]).abs().max()) for one, other in zip(own, cold, strict=True))

    def _cold_of(self, ids: bytes) -> Any:
        import numpy as np
        import torch

        if ids not in self._cold:
            tokens = np.frombuffer(ids, np.int64).copy()
            slots = torch.arange(self._cache.page_size, self._cache.page_size + len(tokens))
            buffers = (*self._pool.k_buffer, *self._pool.v_buffer)
            saved = [buffer[slots].clone() for buffer in buffers]
            self._prefill.compute(tokens, slots)
            self._cold[ids] = [buffer[slots].clone() for buffer in buffers]
            for buffer, content in zip(buffers, saved, strict=True):
                buffer[slots] = content
            while len(self._cold) > 200:
                del self._cold[next(iter(self._cold))]
        return self._cold[ids]


def schedule(inside: Inside, seed: int) -> None:
    """One random history, from an empty cache to an idle engine."""
    draws = random.Random(seed)

    def text(count: int) -> list[int]:
        return [draws.randrange(3, inside.vocabulary) for _ in range(count)]

    documents = [text(draws.choice((96, 160, 240))) for _ in range(2)]
    sessions = [(inside.ask(document, 1), document) for document in documents]
    inside.run(draws.choice((3, 20)))
    for _ in range(draws.randrange(4, 10)):
        kind = draws.choice(("ask", "ask", "ask", "turn", "turn", "break", "break", "abort", "flush", "fault", "press"))
        running = [rid for rid, _ in sessions if not inside.requests[rid].finished()]
        if kind == "ask":
            prompt = text(draws.randrange(8, 60)) + draws.choice(documents) + text(draws.randrange(4, 40))
            sessions.append((inside.ask(prompt, draws.randrange(1, 24)), prompt))
        elif kind in ("turn", "break"):
            rid, prompt = draws.choice(sessions)
            prompt = [*prompt, *inside.requests[rid].output_ids, *text(draws.randrange(4, 40))]
            if kind == "break":
                prompt[: draws.randrange(4, 20)] = text(4)
            if len(prompt) < MAX_PROMPT:
                sessions.append((inside.ask(prompt, draws.randrange(1, 24)), prompt))
        elif kind == "abort" and running:
            inside.abort(draws.choice(running))
        elif kind == "flush":
            inside.run(draws.randrange(30))
            inside.flush()
        elif kind == "fault":
            inside.fails_next = True
        elif kind == "press":
            inside.ask(text(MAX_PROMPT), 1)
        inside.run(draws.choice((0, 1, 3, 10, 30)))
    inside.fails_next = False
    inside.drain()
    inside.flush()
    inside.requests.clear()


def next_turn(inside: Inside) -> dict[str, int]:
    """The turn after a repair, against the same session without us: how many of its tokens are exact prefix hits."""
    draws = random.Random(7)
    document = [draws.randrange(3, inside.vocabulary) for _ in range(240)]
    inside.ask(document, 1)
    inside.drain()
    broken = [*(draws.randrange(3, inside.vocabulary) for _ in range(40)), *document]
    blended = inside.figures["blended"]
    rid = inside.ask(broken, 40)
    inside.drain()
    prompt = [*broken, *inside.requests[rid].output_ids]
    page = inside.cache.page_size
    after = inside.ask([*prompt, *document[:20]], 1)
    was_blended = inside.figures["blended"] - blended
    inside.drain()
    found = {
        "blended_turns": inside.figures["blended"] - blended,
        "blended_before": was_blended,
        "cached": inside.cached_tokens(after),
        "expected": (len(prompt) - 1) // page * page,
    }
    inside.flush()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schedules", type=int)
    parser.add_argument("policy", choices=("off", "idle", "likely"))
    parser.add_argument("--first", type=int, default=0, help="seed of the first schedule")
    parser.add_argument("--plant", action="store_true", help="let inexact KV into the tree")
    arguments = parser.parse_args()
    import_engine()
    import torch

    from semblend.integration.core import repair_schedule

    vars(repair_schedule)["BUSY_STEPS_PER_SLICE"] = 3  # short schedules have few busy steps
    with tempfile.TemporaryDirectory(prefix="sglang-repair-") as folder, torch.inference_mode():
        inside = Inside(Path(folder), arguments.policy)
        if arguments.plant:
            inside.cache._parts.tracker.publishable = lambda _, up_to: up_to
        result: dict[str, Any] = {"inexact": "", "turn": next_turn(inside) if not arguments.plant else {}}
        try:
            for seed in range(arguments.first, arguments.first + arguments.schedules):
                schedule(inside, seed)
                sys.stderr.write(f"schedule {seed}: {json.dumps(inside.figures)}\n")
        except InexactError as error:
            result["inexact"] = f"schedule {seed}: {error}"
        result |= inside.figures | {"pages": inside.oracle.pages, "largest_difference": inside.oracle.largest}
    sys.stdout.write("RESULT " + json.dumps(result) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the engine's threads would keep the process


if __name__ == "__main__":
    main()
