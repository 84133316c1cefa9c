"""What a request may carry past the router: names of media caches, fields that steer engines, the memory of others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from tests.fakes.raw_client import Exchange, ask, chat
from tests.fakes.router_rig import router_rig

HELD: Final = 16
BODY_BYTES: Final = 32 << 20
ASKED: Final = 5
_PART: Final = {"type": "image_url", "image_url": None, "uuid": "shared-name"}
_MEDIA: Final = json.dumps({"model": "m", "messages": [{"role": "user", "content": [_PART]}]}).encode()
_STEERING: Final = b'{"model": "m", "prompt": "x", "kv_transfer_params": {"remote_host": "evil"}'

UNDER_SALTS: Final = {
    "uuid of a media part": _MEDIA,
    "uuid, escaped": _MEDIA.replace(b'"uuid"', b'"\\u0075uid"'),
    "uuid, twice": _MEDIA.replace(b'"uuid"', b'"uuid": null, "uuid"'),
    "uuid, beyond 1 MiB": _MEDIA[:-1] + b', "pad": "' + bytes(1 << 20).replace(b"\0", b"x") + b'"}',
}
ALWAYS: Final = {
    "steering, an integer of 4,400 digits": _STEERING + b', "z": ' + b"9" * 4_400 + b"}",
    "UTF-16 BE": json.dumps({"model": "m", "prompt": "x"}).encode("utf-16-be"),
}


async def refused(folder: Path, *, salted: bool) -> AsyncIterator[tuple[str, int, int]]:
    """Attack, status, and how many requests reached the engine."""
    async with router_rig(folder, "a", inject_cache_salt=salted) as rig:
        for name, body in (UNDER_SALTS if salted else ALWAYS).items():
            reply = await ask(rig.port, body=body)
            reached, rig.replica("a").requests = rig.replica("a").requests, 0
            yield name, reply.status, reached


async def refused_to_others(folder: Path) -> int:
    """How many requests of one tenant get 503 while another one holds as many of the largest bodies as it can."""
    async with router_rig(folder, "a", trust_tenant_header=True, max_body_bytes=BODY_BYTES) as rig:
        held = await asyncio.gather(*(_hold(rig.port) for _ in range(HELD)))
        try:
            asked = [await ask(rig.port, body=chat(), headers={"x-tenant-id": "victim"}) for _ in range(ASKED)]
            return sum(reply.status == 503 for reply in asked)
        finally:
            for each in held:
                await each.close()


async def _hold(port: int) -> Exchange:
    """All but the last byte of a body, until the router refuses it or waits for that byte."""
    exchange = await Exchange.open(port)
    refusal = asyncio.ensure_future(exchange.reader.read(1))
    named = {"x-tenant-id": "mallory", "content-length": str(BODY_BYTES)}
    sending = asyncio.ensure_future(exchange.send("POST", "/v1/chat/completions", bytes(BODY_BYTES - 1), named))
    await asyncio.wait({refusal, sending}, return_when=asyncio.FIRST_COMPLETED)
    for each in (refusal, sending):
        each.cancel()
    await asyncio.gather(refusal, sending, return_exceptions=True)
    return exchange
