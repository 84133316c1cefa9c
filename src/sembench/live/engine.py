"""What the server says it is: kind and version, for the result. Servers that do not say stay unnamed."""

from __future__ import annotations

import json
from typing import Any, Final, Protocol

_VERSION_PATHS: Final = ("/version", "/get_server_info")


class Getter(Protocol):
    async def get(self, url_or_path: str) -> tuple[int, bytes]: ...


async def describe_engine(server: Getter, model: str) -> dict[str, Any]:
    models = await _json(server, "/v1/models")
    served = models.get("data") if isinstance(models.get("data"), list) else []
    first = served[0] if served and isinstance(served[0], dict) else {}
    version = None
    for path in _VERSION_PATHS:
        said = (await _json(server, path)).get("version")
        if isinstance(said, str):
            version = said
            break
    owner = first.get("owned_by")
    return {"name": owner if isinstance(owner, str) else None, "version": version, "model": model}


async def _json(server: Getter, path: str) -> dict[str, Any]:
    try:
        code, body = await server.get(path)
        said = json.loads(body) if code == 200 else None
    except (ConnectionError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}
