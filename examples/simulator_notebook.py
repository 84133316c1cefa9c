"""The simulator as a library, cell by cell as in a notebook: a trace, policies, bounds, a curve, a study with a report.

Runs in seconds without GPU or data; with ``# %%`` cells for editors that know them.
"""

# %% A trace: generated here; ``load_trace("mooncake.jsonl.gz")`` reads a recorded one of any known format.
import tempfile
from pathlib import Path

from semantic_kv.cache.result import CACHE_MODELS
from semantic_kv.experiment.config import Ablation, CurvePlan, ExperimentConfig, PolicyChoice, WorkloadSource
from semantic_kv.experiment.run import RunOptions, run_study
from semantic_kv.experiment.verdict import MODELLED, verdict_of
from semantic_kv.report.outputs import write_study
from semantic_kv.sampling import sample_trace
from semantic_kv.simulate import simulate
from semantic_kv.workload import make_workload

workload = make_workload("low_memory_rag_stress", seed=101)
trace = workload.trace
print(f"{trace.request_count} requests, {trace.reference_count} block references, {trace.node_count} distinct blocks")

# %% One cache: which share of the blocks is found?
for model in CACHE_MODELS:
    for admit in ("always", "not_user_when_full"):
        replay = simulate(
            trace, capacity=workload.capacity_tokens, unit="tokens", evict="lru", admit=admit, model=model
        )
        print(f"{model:<12} lru + {admit:<19} {replay.hit_blocks:>5} / {replay.references} blocks hit")

# %% How much memory would help? The whole trace, and half of its sessions in half of the cache.
for capacity in (1_000, 2_700, 8_000):
    whole = simulate(trace, capacity=capacity, unit="tokens")
    half = simulate(sample_trace(trace, 0.5), capacity=capacity // 2, unit="tokens")
    print(f"{capacity:>6} tokens: hit ratio {whole.hit_ratio:.3f}, from a sample {half.hit_ratio:.3f}")

# %% A study: several seeds, admission against eviction, both bounds, who wins and why.
config = ExperimentConfig(
    experiment="notebook",
    description="Retrieval under low memory, five seeds.",
    source=WorkloadSource("low_memory_rag_stress", sessions=12, requests_per_session=5),
    unit="tokens",
    capacities=(2_700,),
    policies=(PolicyChoice("lru"), PolicyChoice("adaptive_semantic", "score")),
    ablation=Ablation(admit=("always", "not_user_when_full"), evict=("lru", "lfu")),
    curve=CurvePlan((PolicyChoice("lru"),), (1_000, 2_700, 8_000)),
    seeds=(1, 2, 3, 4, 5),
)
with tempfile.TemporaryDirectory() as folder:
    study = run_study(config, RunOptions(Path(folder), quiet=True))
    verdict = verdict_of(study)
    print(verdict.headline)
    for sentence in verdict.sentences:
        print("-", sentence)
    for ranked in study.at(("prefix_tree", 2_700)):
        print(f"{ranked.name:<28} hit ratio {ranked.hit_ratio:.3f}, modelled TTFT {ranked.ttft_mean_ms:.1f} ms")
    write_study(study, Path(folder) / "results", {"made by": "a notebook"})
    print("written:", ", ".join(sorted(path.name for path in (Path(folder) / "results").iterdir())))
print(MODELLED)
