"""The only module of semgate that reads the environment: flags > environment > one TOML file > defaults.

In: flags as text, the environment, ``[proxy]`` or ``[router]`` of the TOML file; out: an immutable settings value.
Unknown names are refused with the nearest known one. The reference page and the flags are made from the same fields.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from semblend.errors import ConfigurationError
from semgate.setting_values import (
    DEFAULT_PATHS,
    flag,
    log_level,
    lower_name,
    optional,
    origin,
    port,
    positive,
    seconds,
    setting,
    whole,
    words,
)

PREFIXES: Final = ("SEMGATE_", "SEMANTICKV_")
CONFIG_VARIABLE: Final = "SEMGATE_CONFIG"
_SERVICE_LINK: Final = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT_\d+_(TCP|UDP|SCTP)(_|$)")


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


S = TypeVar("S", bound=ServerSettings)
KINDS: Final[tuple[type[ServerSettings], ...]] = (ProxySettings, RouterSettings)


def load(
    kind: type[S],
    flags: Mapping[str, str | None] | None = None,
    environment: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> S:
    """The settings of one command; ``flags`` maps field names to text, None where the flag was not given."""
    around = os.environ if environment is None else environment
    refuse_unknown_variables(around)
    if config is None and around.get(CONFIG_VARIABLE):
        config = Path(around[CONFIG_VARIABLE])
    filed = _table(config, kind) if config is not None else {}
    values: dict[str, Any] = {}
    for each in fields(kind):
        given = (flags or {}).get(each.name)
        name, text = f"--{each.name.replace('_', '-')}", given
        if text is None:
            name, text = variable_of(each), around.get(variable_of(each))
        if text is None and each.name in filed:
            name, text = f"{config}: {kind.table}.{each.name}", filed[each.name]
        if text is not None:
            values[each.name] = _parsed(each, text, name)
    return kind(**values)


def config_path(given: Path | None, environment: Mapping[str, str] | None = None) -> Path | None:
    """The TOML file in force: the flag's, or the environment's."""
    around = os.environ if environment is None else environment
    named = around.get(CONFIG_VARIABLE)
    return given or (Path(named) if named else None)


def variable_of(each: Field[Any]) -> str:
    return str(each.metadata["environment"])


def refuse_unknown_variables(around: Mapping[str, str]) -> None:
    known = {variable_of(each) for kind in KINDS for each in fields(kind)} | {CONFIG_VARIABLE}
    for name, value in around.items():
        if name.startswith(PREFIXES) and name not in known and not _is_service_link(name, value):
            raise ConfigurationError(f"{name} is not a setting of semgate; the nearest is {_nearest(name, known)}")


def _is_service_link(name: str, value: str) -> bool:
    """Kubernetes sets SEMGATE_ROUTER_SERVICE_HOST and the like in every pod beside a service of that name."""
    return value.startswith(("tcp://", "udp://", "sctp://")) or _SERVICE_LINK.search(name) is not None


def reference_table(kind: type[ServerSettings]) -> str:
    """The documentation of every setting of one command, as Markdown."""
    rows = ["| TOML key (flag) | Environment | Default | Description |", "|---|---|---|---|"]
    for each in sorted(fields(kind), key=lambda each: each.name):
        flag_name = f"--{each.name.replace('_', '-')}"
        said = str(each.metadata["about"]).replace("|", "\\|")
        rows.append(f"| `{each.name}` (`{flag_name}`) | `{variable_of(each)}` | `{shown_default(each)}` | {said} |")
    return "\n".join(rows) + "\n"


def shown_default(each: Field[Any]) -> str:
    value = each.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    return "none" if value in (None, "") else str(value)


def _parsed(each: Field[Any], text: str, name: str) -> Any:
    parse: Callable[[str], Any] = each.metadata["parse"]
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigurationError(f"{name}={text!r}: {error}") from None


def _table(path: Path, kind: type[ServerSettings]) -> dict[str, str]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}; check --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: is not TOML: {error}") from None
    tables = {each.table: each for each in KINDS}
    for name, table in document.items():
        if name not in tables:
            raise ConfigurationError(f"{path}: unknown table [{name}]; known: [proxy] and [router]")
        known = {each.name for each in fields(tables[name])}
        if not isinstance(table, dict):
            raise ConfigurationError(f"{path}: '{name}' must be a table: write [{name}]")
        for key in table:
            if key not in known:
                raise ConfigurationError(f"{path}: unknown key {name}.{key}; the nearest is {_nearest(key, known)}")
    return {key: _as_text(value, f"{path}: {kind.table}.{key}") for key, value in document.get(kind.table, {}).items()}


def _as_text(value: object, where: str) -> str:
    """TOML values go through the same parsers as flags; a replica may be a table of its parts."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list):
        return ",".join(_as_text(each, where) for each in value)
    if isinstance(value, dict) and isinstance(value.get("url"), str):
        return ";".join([value["url"], *(f"{key}={each}" for key, each in value.items() if key != "url")])
    raise ConfigurationError(
        f"{where}: expected text, a number, a list, or a replica with its url, found {value!r:.60}"
    )


def _nearest(name: str, known: set[str]) -> str:
    return difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]
