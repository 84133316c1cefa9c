"""The manifests parse, agree with each other and with the settings, and keep to the rules a cluster would ask for.

Offline: `kubectl` only renders (no cluster is spoken to, whatever the machine is set up for), and only where installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from semgate.fleet.discovery.static import parse_replicas
from semgate.placement.policy.registry import POLICIES
from semgate.settings import RouterSettings, load

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KINDS = {
    "ConfigMap",
    "Deployment",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
}


def documents() -> list[dict[str, Any]]:
    found = [each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    return [each for each in found if each["kind"] != "Kustomization"]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [each for each in documents() if each["kind"] == kind]
    return found


def container() -> dict[str, Any]:
    (found,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def settings_of(text: str, folder: Path) -> RouterSettings:
    path = folder / "semgate.toml"
    path.write_text(text, encoding="utf-8")
    return load(RouterSettings, None, {}, path)


def test_every_promised_kind_is_there_and_listed() -> None:
    assert {each["kind"] for each in documents()} == KINDS
    listed = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert sorted({*listed} - {"engine"}) == [path.name for path in MANIFESTS if path.name != "kustomization.yaml"]


def test_one_set_of_labels_ties_them_together() -> None:
    labels = {"app.kubernetes.io/name": "semgate", "app.kubernetes.io/component": "router"}
    assert [each["metadata"]["name"] for each in documents() if each["metadata"]["labels"] != labels] == []
    deployment = of_kind("Deployment")["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"] == labels
    assert of_kind("Service")["spec"]["selector"] == labels
    assert of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels


def test_the_container_is_probed_limited_and_confined() -> None:
    router = container()
    assert {router[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe")} == {"/healthz"}
    assert router["readinessProbe"]["httpGet"]["path"] == "/readyz"
    for bound in ("requests", "limits"):
        assert set(router["resources"][bound]) == {"cpu", "memory"}
    assert router["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert all("sizeLimit" in each["emptyDir"] for each in pod["volumes"] if "emptyDir" in each)


def test_mounts_have_volumes_and_paths_of_the_settings_are_mounted(tmp_path: Path) -> None:
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    mounts = {each["mountPath"]: each["name"] for each in container()["volumeMounts"]}
    assert set(mounts.values()) == {each["name"] for each in pod["volumes"]}
    made = settings_of(of_kind("ConfigMap")["data"]["semgate.toml"], tmp_path)
    assert made.admin_api_key_file is not None
    assert made.digest_secret_file is not None, "two routers must make the same salts"
    for path in (made.routing_output_dir, made.admin_api_key_file, made.digest_secret_file):
        assert any(str(path).startswith(f"{mount}/") for mount in mounts)
    assert of_kind("ConfigMap")["metadata"]["name"] == pod["volumes"][0]["configMap"]["name"]


def test_settings_and_ports_agree(tmp_path: Path) -> None:
    made = settings_of(of_kind("ConfigMap")["data"]["semgate.toml"], tmp_path)
    ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
    assert ports == {"http": made.port, "admin": made.admin_port, "status": made.status_port}
    probes = [container()[name]["httpGet"]["port"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert probes == ["status"] * 3, "clients can fill the other port"
    annotations = of_kind("Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(made.status_port)
    assert [each["targetPort"] for each in of_kind("Service")["spec"]["ports"]] == ["http"], "admin is not for clients"
    policy = of_kind("NetworkPolicy")["spec"]
    clients, prometheus = policy["ingress"]
    assert ([each["port"] for each in clients["ports"]], "from" in clients) == ([made.port], False)
    assert ([each["port"] for each in prometheus["ports"]], "from" in prometheus) == ([made.status_port], True)
    to_engines = {each["port"] for each in policy["egress"][0]["ports"]}
    assert {made.events_port, made.replay_port} <= to_engines
    assert made.discovery == "kubernetes"
    assert made.kubernetes_service
    assert made.routing_policy in POLICIES.names()


def test_streams_have_the_time_the_settings_promise(tmp_path: Path) -> None:
    made = settings_of(of_kind("ConfigMap")["data"]["semgate.toml"], tmp_path)
    before_s = int(container()["lifecycle"]["preStop"]["exec"]["command"][1])
    grace_s = of_kind("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > before_s + made.shutdown_seconds


def test_the_account_may_watch_endpoint_slices_and_nothing_else() -> None:
    assert of_kind("Role")["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    ]
    name = of_kind("ServiceAccount")["metadata"]["name"]
    assert of_kind("RoleBinding")["subjects"] == [{"kind": "ServiceAccount", "name": name}]
    assert of_kind("RoleBinding")["roleRef"]["name"] == of_kind("Role")["metadata"]["name"]
    assert of_kind("Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == name


def test_a_drain_is_neither_blocked_nor_an_outage() -> None:
    assert of_kind("Deployment")["spec"]["replicas"] > of_kind("PodDisruptionBudget")["spec"]["minAvailable"] >= 1


def test_compose_agrees_with_its_settings() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    made = load(RouterSettings, None, {}, DEPLOY / "semgate.toml")
    router = compose["services"]["router"]
    endpoints = parse_replicas(made.replicas)
    assert {each.name for each in endpoints} == set(compose["services"]) - {"router"} == set(router["depends_on"])
    assert router["ports"] == [f"{made.port}:{made.port}", f"127.0.0.1:{made.admin_port}:{made.admin_port}"]
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
    user = of_kind("Deployment")["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}" in lines
    assert 'ENTRYPOINT ["semgate"]' in lines


def test_compose_pins_the_engine_gives_each_a_gpu_and_the_router_its_key() -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    services = yaml.safe_load(text)["services"]
    engines = [each for name, each in services.items() if name != "router"]
    assert all(re.search(r":v\d+\.\d+\.\d+\}$", each["build"]["args"]["VLLM_IMAGE"]) for each in engines)
    taken = [each["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for each in engines]
    assert taken[0] != taken[1]
    user = of_kind("Deployment")["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"install -m 400 -o {user} " in text, "the file's owner is all that compose goes by"


def test_no_secret_and_no_registry_host_is_written_down() -> None:
    written = [path for path in DEPLOY.rglob("*") if path.is_file()]
    assert {"compose.yaml", "Dockerfile", "vllm.Dockerfile", "router.yaml", "vllm.yaml"} <= {p.name for p in written}
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\b[0-9a-f]{32,}\b", text), path.name
        assert not re.search(r"image:\s*[\w-]+\.[\w.-]+/", text), path.name


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_renders_them(tmp_path: Path) -> None:
    """`kustomize` only: applying, even as a dry run, would speak to a cluster."""
    rendered = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / "kubernetes")],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": os.devnull},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert rendered.returncode == 0, rendered.stderr
    assert {each["kind"] for each in yaml.safe_load_all(rendered.stdout)} == KINDS | {"PersistentVolumeClaim"}


def test_services_do_not_put_variables_into_the_pod() -> None:
    """A service named semgate-router would set SEMGATE_ROUTER_PORT=tcp://.. beside the settings."""
    assert of_kind("Deployment")["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_only_the_router_reaches_the_engines_and_their_events() -> None:
    """vLLM publishes the token ids of every prompt to all who connect."""
    folder = DEPLOY / "kubernetes" / "engine"
    policy = yaml.safe_load((folder / "network.yaml").read_text(encoding="utf-8"))["spec"]
    engine = yaml.safe_load((folder / "vllm.yaml").read_text(encoding="utf-8"))["spec"]["template"]
    assert policy["podSelector"]["matchLabels"] == engine["metadata"]["labels"]
    assert "Ingress" in policy["policyTypes"]
    (rule,) = policy["ingress"]
    (source,) = rule["from"]
    assert source == {"podSelector": {"matchLabels": of_kind("Deployment")["spec"]["selector"]["matchLabels"]}}
    (served,) = engine["spec"]["containers"]
    assert {port["port"] for port in rule["ports"]} == {port["containerPort"] for port in served["ports"]}
