"""What may be set in the proxy and the router: each field with its variable, parser, default and description.

Read by settings.py, which fills them; everybody else imports them from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from sembase.values import (
    DEFAULT_PATHS,
    flag,
    log_level,
    lower_name,
    optional,
    origin,
    port,
    positive,
    rate,
    seconds,
    setting,
    share,
    whole,
    words,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What the proxy and the router share: the listener, the time limits, the logs, whom to believe."""

    table: ClassVar[str] = ""

    host: str = setting("127.0.0.1", "SEMGATE_HOST", str, "ADDRESS", "address to listen on")
    port: int = setting(8020, "SEMGATE_PORT", port, "N", "port to listen on")
    tls_cert_file: Path | None = setting(
        None, "SEMGATE_TLS_CERT_FILE", optional(Path), "FILE", "certificate chain (PEM) to serve clients over TLS"
    )
    tls_key_file: Path | None = setting(
        None, "SEMGATE_TLS_KEY_FILE", optional(Path), "FILE", "private key (PEM) of the certificate"
    )
    max_body_bytes: int = setting(
        32 << 20, "SEMGATE_MAX_BODY_BYTES", whole, "BYTES", "largest request body; beyond it: status 413"
    )
    max_connections: int = setting(
        10_000, "SEMGATE_MAX_CONNECTIONS", whole, "N", "open client connections; beyond it: status 503"
    )
    connect_seconds: float = setting(
        5.0, "SEMGATE_CONNECT_SECONDS", seconds, "S", "time an upstream has to accept a connection"
    )
    idle_seconds: float = setting(
        120.0, "SEMGATE_IDLE_SECONDS", seconds, "S", "longest silence between two pieces of an answer"
    )
    shutdown_seconds: float = setting(
        30.0, "SEMGATE_SHUTDOWN_SECONDS", seconds, "S", "time open streams have to end after SIGTERM"
    )
    log_level: str = setting("info", "SEMGATE_LOG_LEVEL", log_level, "LEVEL", "debug, info, warning or error")
    trust_tenant_header: bool = setting(
        False,
        "SEMGATE_TRUST_TENANT_HEADER",
        flag,
        "BOOL",
        "believe X-Tenant-ID; otherwise the tenant is a digest of the client's API key, or 'unknown'",
    )
    digest_secret_file: Path | None = setting(
        None,
        "SEMGATE_DIGEST_SECRET_FILE",
        optional(Path),
        "FILE",
        "secret (32 bytes or more) that keys every digest; made once in the output folder when not given",
    )
    min_first_byte_ms: float = setting(
        0.0,
        "SEMGATE_MIN_FIRST_BYTE_MS",
        seconds,
        "MS",
        "no answer begins earlier than this after its request, so that quick ones tell less (0: none is held)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings(ServerSettings):
    table: ClassVar[str] = "proxy"

    port: int = setting(8010, "SEMGATE_PORT", port, "N", "port to listen on")
    upstream_base_url: str = setting(
        "", "SEMANTICKV_UPSTREAM_BASE_URL", origin, "URL", "the OpenAI-compatible server behind the proxy"
    )
    trace_output_dir: Path = setting(
        Path("outputs/live_traces"), "SEMANTICKV_TRACE_OUTPUT_DIR", Path, "FOLDER", "where trace files are written"
    )
    redact_text: bool = setting(
        True, "SEMANTICKV_REDACT_TEXT", flag, "BOOL", "drop prompt text from traces; keyed digests stay"
    )
    proxy_timeout_seconds: float = setting(
        600.0, "SEMANTICKV_PROXY_TIMEOUT_SECONDS", seconds, "S", "time the upstream has to begin its answer"
    )
    forward_authorization: bool = setting(
        True, "SEMGATE_FORWARD_AUTHORIZATION", flag, "BOOL", "pass the client's Authorization to the upstream"
    )
    trace_rotate_bytes: int = setting(
        64 << 20, "SEMGATE_TRACE_ROTATE_BYTES", whole, "BYTES", "begin a new trace file beyond this size"
    )
    trace_rotate_seconds: float = setting(
        3_600.0, "SEMGATE_TRACE_ROTATE_SECONDS", seconds, "S", "begin a new trace file after this time"
    )
    trace_queue_records: int = setting(
        10_000,
        "SEMGATE_TRACE_QUEUE_RECORDS",
        whole,
        "N",
        "records waiting for the disk; beyond it they are counted out",
    )
    guard_share: float = setting(
        0.0,
        "SEMGATE_GUARD_SHARE",
        share,
        "SHARE",
        "share of requests asked again, blended and cold, to compare their answers (0: no guard)",
    )
    guard_file: Path = setting(
        Path("outputs/guard.json"), "SEMGATE_GUARD_FILE", Path, "FILE", "verdicts; the engine reads them"
    )
    guard_ceiling_kl: float = setting(
        0.02, "SEMGATE_GUARD_CEILING_KL", seconds, "NATS", "mean KL along the answer above which a class is turned off"
    )
    guard_class_ceilings: str = setting(
        "",
        "SEMGATE_GUARD_CLASS_CEILINGS",
        str,
        "LIST",
        "lower ceilings of single classes, in nats: edit=0.01,new_instruction=0.005",
    )
    guard_by_prediction: bool = setting(
        False,
        "SEMGATE_GUARD_BY_PREDICTION",
        flag,
        "BOOL",
        "a check's ceiling is the KL the engine predicted for it, where lower; needs a calibration by --server",
    )
    guard_alpha: float = setting(
        0.01, "SEMGATE_GUARD_ALPHA", seconds, "P", "probability of any false alarm, over all time and classes"
    )
    guard_pairs_per_minute: float = setting(
        30.0, "SEMGATE_GUARD_PAIRS_PER_MINUTE", rate, "N", "checks at most; each is a blended and a cold prefill"
    )
    guard_priority: int = setting(
        0, "SEMGATE_GUARD_PRIORITY", whole, "N", "priority of checks where the engine schedules by it (0: say none)"
    )
    otlp_endpoint: str = setting(
        "", "SEMGATE_OTLP_ENDPOINT", str, "URL", "OpenTelemetry collector for spans without text; empty: no spans"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings(ServerSettings):
    table: ClassVar[str] = "router"

    replicas: tuple[str, ...] = setting(
        (),
        "SEMANTICKV_REPLICAS",
        words,
        "LIST",
        "replicas, separated by commas: URL[;name=N][;events=tcp://..][;replay=tcp://..][;donors=tcp://..]",
    )
    routing_policy: str = setting(
        "semantic_locality",
        "SEMANTICKV_ROUTING_POLICY",
        lower_name,
        "NAME",
        "round_robin, least_loaded, prefix_hash, semantic_locality, precise_prefix or semantic_placement",
    )
    routing_output_dir: Path = setting(
        Path("outputs/routing"), "SEMGATE_ROUTING_OUTPUT_DIR", Path, "FOLDER", "where decisions are written"
    )
    decision_files: int = setting(
        8, "SEMGATE_DECISION_FILES", whole, "N", "decision files kept; the oldest is removed (0: write none)"
    )
    decision_file_bytes: int = setting(
        32 << 20, "SEMGATE_DECISION_FILE_BYTES", whole, "BYTES", "begin a new decision file beyond this size"
    )
    decision_ring: int = setting(
        10_000, "SEMGATE_DECISION_RING", whole, "N", "latest decisions kept in memory for `semgate explain`"
    )
    first_byte_seconds: float = setting(
        300.0, "SEMGATE_FIRST_BYTE_SECONDS", seconds, "S", "time a replica has to begin its answer"
    )
    max_attempts: int = setting(
        3, "SEMGATE_MAX_ATTEMPTS", whole, "N", "replicas tried for one request before its first byte"
    )
    retry_share: float = setting(
        0.2,
        "SEMGATE_RETRY_SHARE",
        seconds,
        "SHARE",
        "retries allowed per request on average, so that faults do not storm",
    )
    max_connections_per_replica: int = setting(
        4_096, "SEMGATE_MAX_CONNECTIONS_PER_REPLICA", whole, "N", "open connections to one replica"
    )
    forward_authorization: bool = setting(
        False, "SEMGATE_FORWARD_AUTHORIZATION", flag, "BOOL", "pass the client's Authorization to the replica"
    )
    inject_cache_salt: bool = setting(
        False,
        "SEMGATE_INJECT_CACHE_SALT",
        flag,
        "BOOL",
        "put a secret cache_salt per tenant into requests, so that tenants never share KV (the body is rewritten)",
    )
    pass_paths: tuple[str, ...] = setting(
        DEFAULT_PATHS, "SEMGATE_PASS_PATHS", words, "LIST", "paths that reach the replicas; all others: status 404"
    )
    discovery: str = setting("static", "SEMGATE_DISCOVERY", lower_name, "NAME", "static or kubernetes")
    kubernetes_service: str = setting(
        "", "SEMGATE_KUBERNETES_SERVICE", str, "NAME", "service whose EndpointSlices are the replicas"
    )
    kubernetes_namespace: str = setting(
        "", "SEMGATE_KUBERNETES_NAMESPACE", str, "NAME", "namespace of that service; empty: the router's own"
    )
    events_port: int = setting(
        0, "SEMGATE_EVENTS_PORT", port, "N", "KV-event port of discovered replicas (0: no events)"
    )
    replay_port: int = setting(0, "SEMGATE_REPLAY_PORT", port, "N", "KV-event replay port (0: no replay)")
    donors_port: int = setting(0, "SEMGATE_DONORS_PORT", port, "N", "donor announcements' port (0: none)")
    donors_key_file: Path | None = setting(
        None,
        "SEMGATE_DONORS_KEY_FILE",
        optional(Path),
        "FILE",
        "key that the engines' connectors have (SEMBLEND_DONOR_EVENTS_KEY_FILE), to read their announcements",
    )
    reload_seconds: float = setting(
        2.0,
        "SEMGATE_RELOAD_SECONDS",
        seconds,
        "S",
        "how often the TOML file is looked at for changed replicas (0: never)",
    )
    health_seconds: float = setting(2.0, "SEMGATE_HEALTH_SECONDS", seconds, "S", "time between two health checks")
    tokenizer: Path | None = setting(
        None, "SEMGATE_TOKENIZER", optional(Path), "FOLDER", "tokenizer.json and tokenizer_config.json of the model"
    )
    engine_tokenize: bool = setting(
        False, "SEMGATE_ENGINE_TOKENIZE", flag, "BOOL", "ask a replica's /tokenize when no tokenizer is given"
    )
    model_tokens: int = setting(
        262_144, "SEMGATE_MODEL_TOKENS", positive, "N", "longest prompt of the model; nothing behind is looked at"
    )
    tell_shared_evidence: bool = setting(
        False,
        "SEMGATE_TELL_SHARED_EVIDENCE",
        flag,
        "BOOL",
        "answer with path and similarity also where other tenants' requests decided; for a router with one tenant",
    )
    block_tokens: int = setting(16, "SEMGATE_BLOCK_TOKENS", positive, "N", "tokens per KV block of the engines")
    index_blocks: int = setting(
        1 << 20, "SEMGATE_INDEX_BLOCKS", whole, "N", "KV blocks remembered per replica; the oldest are forgotten"
    )
    history_seconds: float = setting(
        600.0,
        "SEMGATE_HISTORY_SECONDS",
        seconds,
        "S",
        "how long a replica without KV events is believed to hold what it was sent",
    )
    latency_model: Path | None = setting(
        None, "SEMGATE_LATENCY_MODEL", optional(Path), "FILE", "calibration.json of `semantic-kv calibrate`"
    )
    admin_host: str = setting("127.0.0.1", "SEMGATE_ADMIN_HOST", str, "ADDRESS", "address of the admin surface")
    admin_port: int = setting(0, "SEMGATE_ADMIN_PORT", port, "N", "port of the admin surface (0: none)")
    admin_api_key_file: Path | None = setting(
        None, "SEMGATE_ADMIN_API_KEY_FILE", optional(Path), "FILE", "file with the key the admin surface asks for"
    )
    admin_tls_cert_file: Path | None = setting(
        None, "SEMGATE_ADMIN_TLS_CERT_FILE", optional(Path), "FILE", "certificate chain (PEM) of the admin surface"
    )
    admin_tls_key_file: Path | None = setting(
        None, "SEMGATE_ADMIN_TLS_KEY_FILE", optional(Path), "FILE", "private key (PEM) of that certificate"
    )


KINDS: Final[tuple[type[ServerSettings], ...]] = (ProxySettings, RouterSettings)
