"""What may be set in the proxy and the router: each field with its parser, description, variable and default.

settings.py reads them; import the classes from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from sembase.http.credentials import Credentials
from sembase.settings import setting
from sembase.values import (
    Parser,
    amount,
    count,
    flag,
    fraction,
    log_level,
    name,
    optional,
    origin,
    path,
    port,
    positive,
    rate,
    seconds,
    text,
    words,
)

DEFAULT_PATHS: Final = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/models",
    "/v1/models/*",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/rerank",
    "/v1/score",
    "/generate",
    "/tokenize",
    "/detokenize",
)


def _check_replicas(value: Any) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError
    return tuple(replica for each in value if (replica := _replica(each)))


def _replica(value: Any) -> str:
    """``URL;name=N;events=...`` as text, or the same as a table with the key ``url``."""
    if isinstance(value, dict) and isinstance(value.get("url"), str):
        return ";".join([value["url"], *(f"{key}={each}" for key, each in value.items() if key != "url")])
    if not isinstance(value, str):
        raise TypeError
    return value.strip()


_replicas: Final = Parser(
    "a list of replicas: each a URL with its parts as text, or a replica with its url as a table",
    words.decode,
    _check_replicas,
    "LIST",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What the proxy and the router share: listener, time limits, logs, trust."""

    environment_prefix: ClassVar[str] = "SEMGATE_"
    table: ClassVar[str] = ""
    removed: ClassVar[Mapping[str, str]] = {}  # settings of an earlier release, and what to do instead

    status_host: str = setting("127.0.0.1", text, "address of /healthz, /readyz and /metrics", metavar="ADDRESS")
    status_port: int = setting(
        0,
        port,
        "port of /healthz, /readyz and /metrics, which answers also when the clients' port is full (0: none; clients "
        "never see /metrics)",
    )
    host: str = setting("127.0.0.1", text, "address to listen on", metavar="ADDRESS")
    port: int = setting(8020, port, "port to listen on")
    tls_cert_file: Path | None = setting(None, optional(path), "certificate chain (PEM) to serve clients over TLS")
    tls_key_file: Path | None = setting(None, optional(path), "private key (PEM) of the certificate")
    max_body_bytes: int = setting(
        32 << 20, count, "maximum size of a request body; larger ones get status 413", metavar="BYTES"
    )
    max_connections: int = setting(
        10_000, count, "maximum number of open client connections; further ones get status 503"
    )
    connect_seconds: float = setting(5.0, seconds, "timeout for connecting to an upstream")
    idle_seconds: float = setting(120.0, seconds, "maximum time between two chunks of a response")
    shutdown_seconds: float = setting(30.0, seconds, "time open streams have to finish after SIGTERM")
    log_level: str = setting("info", log_level, "debug, info, warning or error", metavar="LEVEL")
    trust_tenant_header: bool = setting(
        False, flag, "trust X-Tenant-ID; otherwise the tenant is a digest of the client's API key, or 'unknown'"
    )
    digest_secret_file: Path | None = setting(
        None,
        optional(path),
        "secret (32 bytes or more) that keys every digest; created once in the output folder if not given",
    )
    upstream_api_key_file: Path | None = setting(
        None,
        optional(path),
        "file with the API key sent to upstreams, in place of the client's; reread when it changes",
    )
    upstream_ca_file: Path | None = setting(
        None, optional(path), "certificate authorities (PEM) that https upstreams are checked with; none: the system's"
    )
    upstream_cert_file: Path | None = setting(
        None,
        optional(path),
        "certificate chain (PEM) shown to https upstreams that ask for one; reread when it changes",
    )
    upstream_key_file: Path | None = setting(None, optional(path), "private key (PEM) of that certificate")
    upstream_tls_name: str = setting(
        "",
        text,
        "name that certificates of https upstreams must have, where upstreams are reached by address; none: the host "
        "of the URL",
        metavar="NAME",
    )
    min_first_byte_ms: float = setting(
        0.0,
        amount,
        "minimum time from a request to the first byte of its response, so that response times reveal less about "
        "cached content (0: off)",
        metavar="MS",
    )

    def upstream_credentials(self) -> Credentials:
        """What upstreams are shown, and what they are checked with."""
        return Credentials(
            api_key_file=self.upstream_api_key_file,
            ca_file=self.upstream_ca_file,
            cert_file=self.upstream_cert_file,
            key_file=self.upstream_key_file,
            server_name=self.upstream_tls_name or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings(ServerSettings):
    table: ClassVar[str] = "proxy"
    removed: ClassVar[Mapping[str, str]] = {"guard_by_prediction": "lower the ceiling of a class: guard_class_ceilings"}

    port: int = setting(8010, port, "port to listen on")
    upstream_base_url: str = setting(
        "", origin, "the OpenAI-compatible server that receives the requests", variable="SEMANTICKV_UPSTREAM_BASE_URL"
    )
    trace_output_dir: Path = setting(
        Path("outputs/live_traces"),
        path,
        "folder for trace files",
        variable="SEMANTICKV_TRACE_OUTPUT_DIR",
        metavar="FOLDER",
    )
    redact_text: bool = setting(
        True, flag, "leave prompt text out of traces; keyed digests remain", variable="SEMANTICKV_REDACT_TEXT"
    )
    tokenizer: Path | None = setting(
        None,
        optional(path),
        "tokenizer.json of the served model, or its folder, for token counts and digests; without it a word rule "
        "counts, which belongs to no model",
    )
    proxy_timeout_seconds: float = setting(
        600.0,
        seconds,
        "timeout for the first byte of the upstream's response",
        variable="SEMANTICKV_PROXY_TIMEOUT_SECONDS",
    )
    forward_authorization: bool = setting(True, flag, "forward the client's Authorization header to the upstream")
    trace_rotate_bytes: int = setting(64 << 20, count, "start a new trace file beyond this size", metavar="BYTES")
    trace_rotate_seconds: float = setting(3_600.0, seconds, "start a new trace file after this time")
    trace_queue_records: int = setting(10_000, count, "maximum queued trace records; the excess is dropped and counted")
    guard_fraction: float = setting(
        0.0,
        fraction,
        "fraction of requests that are sent again, blended and cold, to compare their answers (0: no guard)",
    )
    guard_file: Path = setting(Path("outputs/guard.json"), path, "file of the guard's verdicts, which the engine reads")
    guard_ceiling_kl: float = setting(
        0.02, amount, "mean KL along the answer above which a class is turned off", metavar="NATS"
    )
    guard_class_ceilings: str = setting(
        "", text, "lower ceilings for single classes, in nats: edit=0.01,new_instruction=0.005", metavar="LIST"
    )
    guard_alpha: float = setting(
        0.01, amount, "probability of any false alarm, over all time and all classes", metavar="P"
    )
    guard_pairs_per_minute: float = setting(
        30.0, rate, "maximum number of checks; each is one blended and one cold prefill"
    )
    guard_priority: int = setting(0, count, "priority of checks, for engines that schedule by priority (0: send none)")
    otlp_endpoint: str = setting(
        "", text, "OpenTelemetry collector for spans, which contain no text; empty: no spans", metavar="URL"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings(ServerSettings):
    table: ClassVar[str] = "router"
    removed: ClassVar[Mapping[str, str]] = {
        "workers": "start several routers behind a load balancer, with --shared-state-url"
    }

    replicas: tuple[str, ...] = setting(
        (),
        _replicas,
        "replicas, separated by commas: URL[;name=N][;events=tcp://..][;replay=tcp://..][;donors=tcp://..]",
        variable="SEMANTICKV_REPLICAS",
    )
    routing_policy: str = setting(
        "semantic_locality",
        name,
        "round_robin, least_loaded, prefix_hash, semantic_locality, precise_prefix or semantic_placement",
        variable="SEMANTICKV_ROUTING_POLICY",
    )
    routing_output_dir: Path = setting(Path("outputs/routing"), path, "folder for decision files", metavar="FOLDER")
    decision_files: int = setting(8, count, "number of decision files to keep; the oldest is removed (0: write none)")
    decision_file_bytes: int = setting(32 << 20, count, "start a new decision file beyond this size", metavar="BYTES")
    decision_ring: int = setting(10_000, count, "number of latest decisions kept in memory for `kvmend explain`")
    first_byte_seconds: float = setting(300.0, seconds, "timeout for the first byte of a replica's response")
    max_attempts: int = setting(3, count, "maximum number of replicas tried for one request before its first byte")
    retry_fraction: float = setting(
        0.2,
        amount,
        "retry budget: average number of retries allowed per request, which prevents retry storms",
        metavar="FRACTION",
    )
    max_connections_per_replica: int = setting(4_096, count, "maximum number of open connections to one replica")
    forward_authorization: bool = setting(False, flag, "forward the client's Authorization header to the replica")
    inject_cache_salt: bool = setting(
        False,
        flag,
        "add a secret cache_salt per tenant to requests, so that tenants never share KV (rewrites the body)",
    )
    client_keys_file: Path | None = setting(
        None,
        optional(path),
        "TOML file of tenants, digests of their API keys and how many requests each may have in flight; other clients "
        "get status 401 (none: no authentication). Reread when it changes",
    )
    allow_engine_fields: bool = setting(
        False,
        flag,
        "pass fields and headers that steer engines (kv_transfer_params, bootstrap_host, ranks, destinations); for a "
        "router whose clients are a trusted platform",
    )
    routers: int = setting(
        1, positive, "number of routers that serve the same clients; several need one digest_secret_file for salts"
    )
    shared_state_url: str = setting(
        "",
        text,
        "Valkey or Redis that the routers of a fleet share (valkey://host:6379; valkeys:// for TLS): snapshots of what "
        "replicas hold, drains, sessions, requests in flight per tenant; empty: each router by itself",
        metavar="URL",
    )
    shared_state_space: str = setting(
        "default", name, "name of the fleet in the shared state, so that several fleets can use one server"
    )
    snapshot_seconds: float = setting(
        10.0, seconds, "interval at which one of the routers writes a snapshot of each replica's blocks (0: never)"
    )
    pass_paths: tuple[str, ...] = setting(
        DEFAULT_PATHS, words, "paths that are forwarded to the replicas; all others get status 404"
    )
    discovery: str = setting("static", name, "static or kubernetes")
    kubernetes_service: str = setting("", text, "service whose EndpointSlices are the replicas", metavar="NAME")
    kubernetes_namespace: str = setting("", text, "namespace of that service; empty: the router's own", metavar="NAME")
    kubernetes_scheme: str = setting("http", name, "http or https: how discovered replicas are reached")
    events_port: int = setting(0, port, "KV-event port of discovered replicas (0: no events)")
    replay_port: int = setting(0, port, "KV-event replay port (0: no replay)")
    donors_port: int = setting(0, port, "port of donor announcements (0: none)")
    donors_key_file: Path | None = setting(
        None,
        optional(path),
        "key shared with the engines' connectors (SEMBLEND_DONOR_EVENTS_KEY_FILE), to read their announcements",
    )
    events_server_key_file: Path | None = setting(
        None,
        optional(path),
        "public CURVE certificate of the engines' KV-event publishers; others are not read (none: plain ZeroMQ)",
    )
    donors_server_key_file: Path | None = setting(
        None, optional(path), "the same for donor announcements (SEMBLEND_DONOR_EVENTS_CURVE_KEY_FILE on the engines)"
    )
    curve_key_file: Path | None = setting(
        None,
        optional(path),
        "secret CURVE certificate of this router, for publishers that list the routers they admit (none: a new one)",
    )
    reload_seconds: float = setting(
        2.0, seconds, "interval at which the TOML file is checked for changed replicas (0: never)"
    )
    health_seconds: float = setting(2.0, seconds, "interval of health checks")
    load_seconds: float = setting(
        0.2, seconds, "interval at which the load that engines report in /metrics is read (0: never)"
    )
    tokenizer: Path | None = setting(
        None, optional(path), "folder with tokenizer.json and tokenizer_config.json of the model", metavar="FOLDER"
    )
    engine_tokenize: bool = setting(False, flag, "use a replica's /tokenize if no tokenizer is given")
    model_tokens: int = setting(262_144, positive, "maximum prompt length of the model; tokens beyond it are ignored")
    tell_shared_evidence: bool = setting(
        False,
        flag,
        "report path and similarity in responses even where requests of other tenants decided; for a router with one "
        "tenant",
    )
    block_tokens: int = setting(16, positive, "tokens per KV block of the engines")
    index_blocks: int = setting(
        1 << 20, count, "maximum number of KV blocks tracked per replica; the oldest are dropped"
    )
    history_seconds: float = setting(
        600.0, seconds, "how long a replica without KV events is assumed to hold the prompts it received"
    )
    latency_model: Path | None = setting(None, optional(path), "calibration.json of `kvmend simulate calibrate`")
    fetch_ms: float = setting(0.0, amount, "milliseconds that a fetch from the fleet's store takes besides its tokens")
    fetch_ms_per_token: float | None = setting(
        None,
        optional(amount),
        "milliseconds to fetch a token's KV from the fleet's store (not set: no replica is expected to fetch)",
    )
    admin_host: str = setting("127.0.0.1", text, "address of the admin API", metavar="ADDRESS")
    admin_port: int = setting(0, port, "port of the admin API (0: none)")
    admin_api_key_file: Path | None = setting(None, optional(path), "file with the key that the admin API requires")
    admin_tls_cert_file: Path | None = setting(None, optional(path), "certificate chain (PEM) of the admin API")
    admin_tls_key_file: Path | None = setting(None, optional(path), "private key (PEM) of that certificate")


@dataclass(frozen=True, slots=True, kw_only=True)
class PickerSettings(RouterSettings):
    """The router's, since it places as the router does; the data plane forwards."""

    table: ClassVar[str] = "picker"
    removed: ClassVar[Mapping[str, str]] = {
        **RouterSettings.removed,
        "unary_port": "use external processing (gRPC on --port), as deploy/envoy/picker.yaml does",
    }

    port: int = setting(9002, port, "port of the external processing service (gRPC)")


KINDS: Final[tuple[type[ServerSettings], ...]] = (ProxySettings, RouterSettings, PickerSettings)
