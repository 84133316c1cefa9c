"""The schema of the Helm chart's values: settings of router, picker and proxy in, ``values.schema.json`` out.

``python -m scripts.generate_docs`` writes it. A misspelt or mistyped setting is then refused by `helm install`, not by
a pod that does not start.
"""

from __future__ import annotations

import json
import types
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from semgate.settings import PickerSettings, ProxySettings, RouterSettings

# Set by the chart itself: addresses, ports, folders and what is mounted from secrets.
OF_THE_CHART: Final = frozenset(
    {
        "host",
        "port",
        "status_host",
        "status_port",
        "digest_secret_file",
        "routing_output_dir",
        "trace_output_dir",
        "admin_host",
        "admin_port",
        "admin_api_key_file",
        "client_keys_file",
        "tls_cert_file",
        "tls_key_file",
        "shared_state_url",
        "upstream_api_key_file",
    }
)
TYPES: Final[dict[Any, dict[str, Any]]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Path: {"type": "string"},
    tuple: {"type": "array", "items": {"type": "string"}},
}
WORD: Final = {"type": "string"}
FLAG: Final = {"type": "boolean"}
MAP: Final = {"type": "object"}
WORDS: Final = {"type": "object", "additionalProperties": WORD}
PEERS: Final = {"type": "array", "items": MAP}
PORT: Final = {"type": "integer", "minimum": 1, "maximum": 65535}


def values_schema() -> str:
    whole = _closed(
        image=_closed(repository=WORD, tag=WORD, pullPolicy=_pull()),
        imagePullSecrets=PEERS,
        secrets=_closed(digest=WORD, admin=WORD, clientKeys=WORD, engineKey=WORD, sharedState=WORD, tls=WORD),
        router=_component(RouterSettings, service=_service()),
        picker=_component(
            PickerSettings,
            inferencePool=_closed(
                create=FLAG, selector=WORDS, targetPort=PORT, failureMode={"enum": ["FailOpen", "FailClose"]}
            ),
            httpRoute=_closed(create=FLAG, gateway=WORD, hostnames={"type": "array", "items": WORD}, path=WORD),
        ),
        proxy=_component(ProxySettings, service=_service(), traces=_closed(size=WORD, claim=WORD)),
        engine=_closed(
            enabled=FLAG,
            name=WORD,
            image=_closed(repository=WORD, tag=WORD, pullPolicy=_pull()),
            replicas=_number(0),
            model=_closed(claim=WORD, create=FLAG, size=WORD, storageClass=WORD),
            args={"type": "array", "items": WORD},
            resources=_resources(),
            extraPodSpec=MAP,
        ),
        networkPolicy=_closed(
            enabled=FLAG,
            monitoringNamespace=WORD,
            clients=PEERS,
            dataPlane=PEERS,
            engines=_closed(enabled=FLAG, labels=WORDS, clients=PEERS),
            apiServerPorts={"type": "array", "items": PORT},
            extraEgress=PEERS,
        ),
        monitoring=_closed(
            serviceMonitor=_closed(enabled=FLAG, interval=WORD, labels=WORDS),
            prometheusRule=_closed(enabled=FLAG, labels=WORDS),
            dashboard=_closed(enabled=FLAG, labels=WORDS),
        ),
    )
    whole["properties"]["global"] = MAP  # Helm adds it
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **whole}, indent=1) + "\n"


def settings_schema(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    names = [each.name for each in fields(kind) if each.name not in OF_THE_CHART]
    return _closed(**{name: TYPES[_plain(hints[name])] for name in names}) | {"required": ["shutdown_seconds"]}


def _component(kind: type, **more: dict[str, Any]) -> dict[str, Any]:
    return _closed(
        enabled=FLAG,
        replicas=_number(1),
        settings=settings_schema(kind),
        resources=_resources(),
        autoscaling=_closed(
            enabled=FLAG,
            minReplicas=_number(1),
            maxReplicas=_number(1),
            cpuPercent={"type": "integer", "minimum": 1, "maximum": 100},
        ),
        minAvailable=_number(1),
        extraPodSpec=MAP,
        **more,
    )


def _plain(hint: Any) -> Any:
    """``Path | None`` as ``Path``, ``tuple[str, ...]`` as ``tuple``."""
    if isinstance(hint, types.UnionType):
        (hint,) = [each for each in typing.get_args(hint) if each is not type(None)]
    return typing.get_origin(hint) or hint


def _closed(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _service() -> dict[str, Any]:
    return _closed(type={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}, port=PORT)


def _resources() -> dict[str, Any]:
    return _closed(requests=MAP, limits=MAP) | {"required": ["requests", "limits"]}


def _pull() -> dict[str, Any]:
    return {"enum": ["Always", "IfNotPresent", "Never"]}


def _number(minimum: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": minimum}
