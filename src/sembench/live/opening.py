"""A run whose server answers: clients, resets tried once, warm-up done. What fails here would fail for every item."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from sembase.errors import ConfigurationError
from sembase.streams import write_err
from sembench.http.client import LiveClient
from sembench.http.reply import OK
from sembench.live.audit import ConnectorAudit
from sembench.live.engine import describe_engine
from sembench.live.messages import Messages
from sembench.live.options import LiveRun
from sembench.live.prompt_size import PromptSizes
from sembench.live.resets import Resets
from sembench.live.session import Session


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run whose server answers: the session, and what the server is."""

    session: Session
    client: LiveClient
    engine: Mapping[str, Any]
    config: Mapping[str, Any]


async def open_run(run: LiveRun, sizes: PromptSizes, stack: AsyncExitStack) -> OpenRun:
    """Waits for the server, tries every reset once and sends the warm-up: what fails here would fail for every item."""
    chosen = run.options

    async def connect(url: str) -> LiveClient:
        client = LiveClient(
            url, timeout_s=run.timeout_s, max_connections=chosen.concurrency + 1, headers=dict(run.headers)
        )
        return await stack.enter_async_context(client)

    client = await connect(run.base_url)
    model = await client.wait_ready(run.ready_s)
    donor_client = client if run.donor_url is None else await connect(run.donor_url)
    if donor_client is not client:
        await donor_client.wait_ready(run.ready_s)
    messages = Messages(chosen, run.model or model, by_tenant=run.isolation == "tenant")

    async def nudge() -> object:
        return await client.ask(messages.nudge())

    audit = None
    if run.connector_audit:
        audit = ConnectorAudit(run.connector_audit, chosen.settle_ms / 1000, nudge)
        stack.callback(audit.close)
    resets = Resets(client, run.reset_urls, nudge)
    recipient_resets = Resets(client, run.recipient_reset_urls, nudge)
    session = Session(client, donor_client, messages, resets, recipient_resets, sizes, chosen, audit)
    await resets.require("--reset-url")
    await recipient_resets.require("--recipient-reset-url")
    await _warm_up(run, client, messages)
    engine = await describe_engine(client, messages.model)
    return OpenRun(session, client, engine, run.config(sizes.describe(), messages.model))


async def _warm_up(run: LiveRun, client: LiveClient, messages: Messages) -> None:
    """The first requests of a server pay for what is loaded late, and show whether it can be measured at all."""
    for number in range(run.options.warm_up):
        donor, recipient = messages.warm_up(number)
        for request in (donor, messages.nudge(), recipient):
            reply = await client.ask(request)
            if reply.status != OK:
                raise ConfigurationError(
                    f"{run.base_url} does not serve the warm-up request: {reply.status} {reply.detail}".rstrip()
                )
        if not number and run.options.arms != "warm" and reply.cached_tokens is None:
            write_err(
                "sembench: note: the server does not report cached tokens, so nobody can tell whether a cold arm was "
                "cold (vLLM: --enable-prompt-tokens-details; SGLang: --enable-cache-report)\n"
            )
