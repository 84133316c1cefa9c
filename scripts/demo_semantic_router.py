"""Shows the router at work without an engine: two fake replicas, three conversations in turn, two policies.

Run: ``python scripts/demo_semantic_router.py``. Prints where each request went and why. The fake replicas hold no
KV, so nothing gets faster: the last line counts how often a conversation returned to its previous replica. Three
conversations in turn on two replicas are the worst case of round robin.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from sembase.http.server import HttpServer
from semgate.router.app import RouterApp
from semgate.router.gateway import Gateway
from semgate.settings import RouterSettings

SYSTEM = {
    "support": "You answer questions about refunds, politely and shortly. " * 8,
    "code": "You review Python code and name the first defect you see. " * 8,
    "legal": "You summarise contracts clause by clause for a lay reader. " * 8,
}
TURNS = 4
POLICIES = ("round_robin", "semantic_locality")


async def fake_replica(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """A replica that answers yes to everything."""
    while (await receive()).get("more_body"):
        pass
    body = b'{"choices": [{"message": {"role": "assistant", "content": "yes"}}]}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def ask(port: int, topic: str, turn: int) -> str:
    """The replica that took this turn of a conversation."""
    messages = [{"role": "system", "content": SYSTEM[topic]}]
    messages += [{"role": "user", "content": f"{topic} question {number}"} for number in range(turn + 1)]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": "demo", "messages": messages}))
    reply = connection.getresponse()
    reply.read()
    connection.close()
    return str(reply.getheader("x-semantickv-replica"))


async def show(policy: str, folder: Path, replicas: tuple[str, ...]) -> None:
    settings = RouterSettings(replicas=replicas, routing_policy=policy, routing_output_dir=folder, decision_files=0)
    gateway = Gateway(settings, b"only for this demonstration, not a secret")
    server = HttpServer(RouterApp(gateway), host="127.0.0.1", port=0, shutdown_seconds=1.0)
    await gateway.start()
    port = await server.start()
    print(f"\n{policy}\n{'request':<18} {'replica':<8} {'path':<20} reason")
    last: dict[str, str] = {}
    stayed = asked = 0
    for turn in range(TURNS):
        for topic in SYSTEM:
            replica = await asyncio.to_thread(ask, port, topic, turn)
            asked += topic in last
            stayed += last.get(topic) == replica
            last[topic] = replica
            decision = gateway.ring.latest(1)[0]
            print(f"{topic + ' turn ' + str(turn + 1):<18} {replica:<8} {decision.route:<20} {decision.reason}")
    print(f"turns routed to the replica of the previous turn: {stayed} of {asked}")
    await server.stop()
    await gateway.stop()


async def main() -> None:
    servers = [HttpServer(fake_replica, host="127.0.0.1", port=0, shutdown_seconds=1.0) for _ in range(2)]
    ports = [await server.start() for server in servers]
    replicas = tuple(
        f"http://127.0.0.1:{port};name={name}" for port, name in zip(ports, ("blue", "green"), strict=True)
    )
    with tempfile.TemporaryDirectory() as folder:
        for policy in POLICIES:
            await show(policy, Path(folder), replicas)
    for server in servers:
        await server.stop()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    asyncio.run(main())
