"""The EndpointSlices of a service, listed and then watched -> all endpoints, passed to a callback after each change.

Lists in pages, watches from the list's resourceVersion, follows bookmarks, lists again when the server has dropped
that version (410 Gone). While the server is unreachable the last known endpoints stay. State: the slices.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from sembase.errors import ConfigurationError
from semgate.fleet.discovery.api_server import ApiServer, ApiServerFaultError
from semgate.fleet.discovery.slices import SliceOptions, endpoints_of
from semgate.fleet.endpoint import Endpoint

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IN_CLUSTER: Final = "https://kubernetes.default.svc"
_GONE: Final = 410


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """``watch_s`` ends a watch before the token expires; ``retry_s`` doubles up to ``max_retry_s``, with jitter."""

    watch_s: int = 300
    page: int = 500
    retry_s: float = 0.5
    max_retry_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    namespace: str
    ports: SliceOptions = field(default_factory=SliceOptions)


class _GoneError(Exception):
    """The resourceVersion is too old: list again."""


class EndpointSliceWatch:
    """``changed`` receives all endpoints after every change, and again if it raised ``ConfigurationError``; ``failed``
    receives a line for the log after every fault."""

    def __init__(
        self,
        server: ApiServer,
        service: Service,
        changed: Callable[[tuple[Endpoint, ...]], None],
        failed: Callable[[str], None],
        options: WatchOptions | None = None,
    ) -> None:
        self._server = server
        self._service = service
        self._changed = changed
        self._failed = failed
        self._options = options or WatchOptions()
        self._slices: dict[str, dict[str, Any]] = {}
        self._reported: tuple[Endpoint, ...] | None = None
        self._version: str | None = None

    async def run(self) -> None:
        """Until cancelled."""
        faults = 0
        while True:
            try:
                if self._version is None:
                    self._version = await self._list()
                began_s = asyncio.get_running_loop().time()
                if await self._watch(self._version):
                    faults = 0
                    continue
                if asyncio.get_running_loop().time() - began_s >= self._options.retry_s:
                    continue
                reason = "the watch ended immediately"
            except _GoneError:
                self._version = None
                if faults == 0:  # usually one list is enough; a second 410 in a row waits before the next
                    faults = 1
                    continue
                reason = "the resourceVersion is gone again"
            except (OSError, TimeoutError, ValueError, ConfigurationError) as error:
                self._version, reason = None, str(error) or type(error).__name__
            faults += 1
            self._failed(f"Kubernetes discovery: {reason}; {len(self._reported or ())} known replicas are kept")
            await asyncio.sleep(self._pause_s(faults))

    def _pause_s(self, faults: int) -> float:
        longest = min(self._options.retry_s * 2.0 ** min(faults - 1, 20), self._options.max_retry_s)
        return random.uniform(0.5, 1.0) * longest

    async def _list(self) -> str:
        slices: dict[str, dict[str, Any]] = {}
        page: str | None = None
        while True:
            more = {"limit": str(self._options.page), **({"continue": page} if page else {})}
            record = await self._get_json(self._path(more))
            for each in record.get("items") or ():
                slices[each["metadata"]["name"]] = each
            head = record.get("metadata") or {}
            page = head.get("continue")
            if not page:
                break
        self._slices = slices
        self._report()
        return str(head.get("resourceVersion") or "")

    async def _get_json(self, path: str) -> dict[str, Any]:
        async with self._server.get(path) as (status, lines):
            body = b"\n".join([line async for line in lines])
            _check(status)
        record = json.loads(body)
        if not isinstance(record, dict):
            raise ApiServerFaultError("the API server's list is not an object")
        return record

    async def _watch(self, version: str) -> int:
        """Number of events seen. Returns when the server ends the watch, which it does routinely."""
        more = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(self._options.watch_s),
        }
        seen = 0
        async with self._server.get(self._path(more)) as (status, lines):
            _check(status)
            async for line in lines:
                self._follow(json.loads(line))
                seen += 1
        return seen

    def _follow(self, event: dict[str, Any]) -> None:
        kind, record = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            _check(int(record.get("code") or 500))
        head = record.get("metadata") or {}
        if kind in ("ADDED", "MODIFIED"):
            self._slices[head["name"]] = record
        elif kind == "DELETED":
            self._slices.pop(head["name"], None)
        if kind != "BOOKMARK":
            self._report()
        self._version = head.get("resourceVersion") or self._version

    def _report(self) -> None:
        endpoints = endpoints_of(self._slices.values(), self._service.ports)
        if endpoints != self._reported:
            self._changed(endpoints)
            self._reported = endpoints  # not reached if the list was rejected, so that it is reported again

    def _path(self, more: dict[str, str]) -> str:
        selector = f"kubernetes.io/service-name={self._service.name}"
        namespace = quote(self._service.namespace, safe="")
        query = urlencode({"labelSelector": selector, **more})
        return f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?{query}"


def _check(status: int) -> None:
    if status == _GONE:
        raise _GoneError
    if status in (401, 403):
        raise ApiServerFaultError(
            f"the API server answered {status}: the service account needs get, list and watch on endpointslices"
        )
    if not 200 <= status < 300:
        raise ApiServerFaultError(f"the API server answered {status}")


def in_cluster(account: Path = ACCOUNT) -> ApiServer:
    """The API server as a pod sees it."""
    if not (account / "token").is_file():
        raise ConfigurationError(f"no service-account token in {account}: run in a pod, or use static discovery")
    return ApiServer(IN_CLUSTER, account / "token", account / "ca.crt")


def own_namespace(account: Path = ACCOUNT) -> str:
    try:
        return (account / "namespace").read_text().strip()
    except OSError:
        raise ConfigurationError("the namespace is unknown; set --kubernetes-namespace") from None
