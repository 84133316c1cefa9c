"""The compose file and the image agree with the settings and with each other. The chart: test_chart.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml

from semgate.fleet.discovery.static import parse_replicas
from semgate.placement.policy.registry import POLICIES
from semgate.settings import RouterSettings, load

DEPLOY = Path(__file__).parents[2] / "deploy"
USER = 10001


def test_compose_agrees_with_its_settings() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    made = load(RouterSettings, None, {}, DEPLOY / "semgate.toml")
    router = compose["services"]["router"]
    endpoints = parse_replicas(made.replicas)
    assert {each.name for each in endpoints} == set(compose["services"]) - {"router"} == set(router["depends_on"])
    assert router["ports"] == [f"127.0.0.1:{port}:{port}" for port in (made.port, made.admin_port)]
    for each in endpoints:
        engine = compose["services"][each.name]
        events = next(word for word in engine["command"] if "enable_kv_cache_events" in word)
        assert each.events is not None
        assert each.replay is not None
        assert f"*:{each.events.rpartition(':')[2]}" in events
        assert f"*:{each.replay.rpartition(':')[2]}" in events
        assert "ports" not in engine, "engines are reached through the router only"
    assert all("healthcheck" in each for each in compose["services"].values())
    assert f"localhost:{made.status_port}/readyz" in router["healthcheck"]["test"][-1]
    assert (router["read_only"], router["cap_drop"]) == (True, ["ALL"])
    assert set(router["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
    assert int(router["stop_grace_period"].removesuffix("s")) > made.shutdown_seconds
    assert made.routing_policy in POLICIES.names()


def test_the_image_runs_as_an_unprivileged_user() -> None:
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert f"USER {USER}" in lines
    assert f"runAsUser: {USER}" in (DEPLOY / "helm/semgate/templates/_workload.tpl").read_text(encoding="utf-8")


@pytest.mark.load
def test_a_started_image_compiles_nothing(tmp_path: Path) -> None:
    """As in the image: compile once, copy by its entry point, start; every loop is found and none is compiled again."""
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert 'ENTRYPOINT ["sh", "/usr/local/bin/semgate-start"]' in lines
    compiled, copied, bin_ = tmp_path / "compiled", tmp_path / "numba", tmp_path / "bin"
    bin_.mkdir()
    warm = re.search(r'python -c "(.*)"', lines)
    assert warm is not None
    shown = tmp_path / "arguments"
    (bin_ / "kvmend").write_text(f'#!/bin/sh\necho "$@" > {shown}\n{sys.executable} -c "{warm[1]}"\n', encoding="utf-8")
    (bin_ / "kvmend").chmod(0o755)
    source = str(DEPLOY.parent / "src")
    environment = {"PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONPATH": source, "NUMBA_CPU_NAME": "generic"}
    run = partial(subprocess.run, check=True, timeout=600)
    run([sys.executable, "-c", warm[1]], env={**environment, "NUMBA_CACHE_DIR": str(compiled)})
    made = {path.relative_to(compiled): path.stat().st_mtime_ns for path in compiled.rglob("*.nb*")}
    assert made
    start = ["sh", str(DEPLOY / "start.sh"), "route", "--port", "8020"]
    run(start, env={**environment, "NUMBA_CACHE_DIR": str(copied), "COMPILED_DIR": str(compiled)})
    assert shown.read_text(encoding="utf-8").split() == start[2:]
    found = {path.relative_to(copied) for path in copied.rglob("*.nb*")}
    assert found == set(made), "a loop that is compiled again would leave another file"
    assert {path.read_bytes() for path in copied.rglob("*.nbi")} == {
        path.read_bytes() for path in compiled.rglob("*.nbi")
    }


def test_compose_pins_the_engine_gives_each_a_gpu_and_the_router_its_key() -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    services = yaml.safe_load(text)["services"]
    engines = [each for name, each in services.items() if name != "router"]
    assert all(re.search(r":v\d+\.\d+\.\d+\}$", each["build"]["args"]["VLLM_IMAGE"]) for each in engines)
    taken = [each["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for each in engines]
    assert taken[0] != taken[1]
    assert f"install -m 400 -o {USER} " in text, "the file's owner is all that compose goes by"


def test_no_secret_and_no_registry_host_is_written_down() -> None:
    written = [path for path in DEPLOY.rglob("*") if path.is_file()]
    assert {"compose.yaml", "Dockerfile", "vllm.Dockerfile", "values.yaml", "engine.yaml"} <= {p.name for p in written}
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\b[0-9a-f]{32,}\b", text), path.name
        assert not re.search(r"image:\s*[\w-]+\.[\w.-]+/", text), path.name
