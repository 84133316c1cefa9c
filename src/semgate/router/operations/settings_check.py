"""Checks a router's settings before anything slow starts (compilation, a tokenizer), and reads its keys.

Errors name the flag. Called by the service and the gateway.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError
from sembase.zmq_curve import CurveClient, open_curve_client
from semblend.contract.donor_event import read_key
from semgate.fleet import Endpoint
from semgate.fleet.discovery.static import parse_replicas
from semgate.placement.policy.registry import POLICIES
from semgate.settings import RouterSettings

MIN_KEY_CHARACTERS: Final = 16


def check_settings(settings: RouterSettings) -> None:
    """Raises ``ConfigurationError`` for the first invalid setting."""
    POLICIES.get(settings.routing_policy)
    _check_discovery(settings)
    if settings.inject_cache_salt and settings.digest_secret_file is None and _may_be_several(settings):
        raise ConfigurationError(
            "--inject-cache-salt with several routers requires --digest-secret-file, the same on all of them: with a "
            "secret each, one tenant would get two salts"
        )
    if settings.donors_key_file is not None:
        donors_key(settings.donors_key_file)
    for certificate in (settings.events_server_key_file, settings.donors_server_key_file):
        publisher_curve(settings, certificate)
    if settings.tokenizer is not None:
        _check_file(settings.tokenizer / "tokenizer.json", f"--tokenizer {settings.tokenizer}")
    if settings.admin_port:
        read_admin_key(settings.admin_api_key_file)
    for name in ("latency_model", "tls_cert_file", "tls_key_file", "admin_tls_cert_file", "admin_tls_key_file"):
        path: Path | None = getattr(settings, name)
        if path is not None:
            _check_file(path, f"--{name.replace('_', '-')}")


def _may_be_several(settings: RouterSettings) -> bool:
    return settings.routers > 1 or settings.discovery == "kubernetes"


def replicas_of(settings: RouterSettings, texts: tuple[str, ...]) -> tuple[Endpoint, ...]:
    """The configured list of replicas, parsed."""
    if settings.discovery != "static":
        raise ConfigurationError("replicas come from Kubernetes; scale the service instead")
    if not texts:
        raise ConfigurationError(
            "no replicas: set --replicas http://host:port,..., SEMANTICKV_REPLICAS, or router.replicas in the TOML file"
        )
    endpoints = tuple(parse_replicas(texts))
    if settings.donors_key_file is None and any(each.donors for each in endpoints):
        raise ConfigurationError("replicas announce donors: set --donors-key-file to the engines' key")
    return endpoints


def donors_key(path: Path) -> bytes:
    try:
        return read_key(path)
    except ValueError as error:
        raise ConfigurationError(f"--donors-key-file: {error}") from None


def publisher_curve(settings: RouterSettings, server_key_file: Path | None) -> CurveClient | None:
    """How publishers with that public certificate are read; None for plain ZeroMQ."""
    return None if server_key_file is None else open_curve_client(server_key_file, settings.curve_key_file)


def read_admin_key(path: Path | None) -> str:
    """The key comes from a file and never from a flag, which every user of the machine could read."""
    if path is None:
        raise ConfigurationError("the admin surface needs a key: write one to a file and set --admin-api-key-file")
    try:
        key = path.read_text(encoding="ascii").strip()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"--admin-api-key-file {path}: the admin key cannot be read: {reason}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"--admin-api-key-file {path}: the admin key must be ASCII") from None
    if len(key) < MIN_KEY_CHARACTERS:
        raise ConfigurationError(
            f"--admin-api-key-file {path}: the admin key must have at least {MIN_KEY_CHARACTERS} characters"
        )
    return key


def _check_discovery(settings: RouterSettings) -> None:
    if settings.discovery not in ("static", "kubernetes"):
        raise ConfigurationError(f"--discovery '{settings.discovery}' must be static or kubernetes")
    if settings.discovery == "static":
        replicas_of(settings, settings.replicas)
    elif not settings.kubernetes_service:
        raise ConfigurationError("--discovery kubernetes requires --kubernetes-service")
    elif settings.kubernetes_scheme not in ("http", "https"):
        raise ConfigurationError(f"--kubernetes-scheme '{settings.kubernetes_scheme}' must be http or https")
    elif settings.donors_port and settings.donors_key_file is None:
        raise ConfigurationError("--donors-port requires --donors-key-file (the engines' key)")


def _check_file(path: Path, flag: str) -> None:
    try:
        with path.open("rb"):
            return
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"{flag}: {path} cannot be read: {reason}") from None
