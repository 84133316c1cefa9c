"""deploy/compose.observe.yaml: valid by its schema, agrees with its files, and its parts run without containers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from scripts.engines.prometheus import binary_of
from tests.fakes.router_rig import router_rig
from tests.integration.semgate.test_observability import NEEDS_PROMETHEUS, api, prometheus
from tests.waiting import PATIENCE_S

from sembase.http.server import HttpServer
from semgate.http.served_paths import status_app
from semgate.settings import RouterSettings, load

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
SCHEMAS = {
    "compose-spec": ("deploy/compose.yaml", "deploy/compose.observe.yaml"),
    "github-workflows": (".github/workflows/ci.yml", ".github/workflows/release.yml"),
    "dependabot": (".github/dependabot.yml",),
    "citation-file-format": ("CITATION.cff",),
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_are_valid_by_their_published_schema(schema: str) -> None:
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *SCHEMAS[schema]]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_services_agree_with_each_other_and_with_the_router() -> None:
    base = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    added = yaml.safe_load((DEPLOY / "compose.observe.yaml").read_text(encoding="utf-8"))
    assert not set(base["services"]) & set(added["services"])
    router = load(RouterSettings, None, {}, DEPLOY / "semgate.toml")
    assert router.status_host == "0.0.0.0", "Prometheus is in another container"
    scraped = yaml.safe_load((DEPLOY / "observability" / "prometheus.yaml").read_text(encoding="utf-8"))
    targets = [each for job in scraped["scrape_configs"] for part in job["static_configs"] for each in part["targets"]]
    assert targets == [f"router:{router.status_port}", "vllm-a:8000", "vllm-b:8000"]
    assert {target.partition(":")[0] for target in targets} == set(base["services"])
    assert added["services"]["traffic"]["environment"]["TARGET"] == f"http://router:{router.port}"
    for name, service in added["services"].items():
        assert (service["cap_drop"], "healthcheck" in service) == (["ALL"], True), name
        assert set(service["networks"]) <= set(base["networks"])
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), "not published to the network"
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (DEPLOY / source).is_file(), source
    source = yaml.safe_load((DEPLOY / "observability" / "grafana" / "datasource.yaml").read_text(encoding="utf-8"))
    assert source["datasources"][0]["url"] == "http://prometheus:9090"


@pytest.mark.skipif(binary_of("promtool") is None, reason="promtool is not here")
def test_prometheus_accepts_its_configuration() -> None:
    command = [str(binary_of("promtool")), "check", "config", str(DEPLOY / "observability" / "prometheus.yaml")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "rules found" in checked.stdout


async def send_traffic(folder: Path, port: int) -> str:
    """The generator's own script, for one short round."""
    commands = folder / "bin"
    commands.mkdir()
    (commands / "kvmend").write_text(f'#!/bin/sh\nexec {sys.executable} -m kvmend "$@"\n', encoding="utf-8")
    (commands / "kvmend").chmod(0o755)
    settings = {"TARGET": f"http://127.0.0.1:{port}", "TRAFFIC_RATE": "10", "TRAFFIC_SECONDS": "2", "ROUNDS": "1"}
    process = await asyncio.create_subprocess_exec(
        "sh",
        str(DEPLOY / "observability" / "traffic.sh"),
        env={**os.environ, **settings, "PATH": f"{commands}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


@NEEDS_PROMETHEUS
def test_traffic_through_the_router_is_seen_by_prometheus(tmp_path: Path) -> None:
    async def act() -> None:
        async with router_rig(tmp_path) as rig:
            status = HttpServer(status_app(rig.gateway.readiness, rig.gateway.metrics.text), host="127.0.0.1", port=0)
            try:
                async with prometheus(tmp_path, await status.start()) as port:
                    await send_traffic(tmp_path, rig.port)
                    async with asyncio.timeout(PATIENCE_S):
                        while True:
                            answer = await api(port, "query", query="sum(semgate_requests_total)")
                            found = answer["data"]["result"]
                            if found and float(found[0]["value"][1]) > 0:
                                return
                            await asyncio.sleep(0.2)
            finally:
                await status.stop()

    asyncio.run(asyncio.wait_for(act(), 4 * PATIENCE_S))
