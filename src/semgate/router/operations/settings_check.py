"""Settings of a router looked at before anything slow begins (compiling, a tokenizer): wrong ones are told at once,
with the flag. Called by the service and the gateway; files are read again by their users."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError
from semblend.contract.donor_event import read_key
from semgate.fleet import Endpoint
from semgate.fleet.discovery.static import parse_replicas
from semgate.placement.policy.registry import POLICIES
from semgate.settings import RouterSettings

MIN_KEY_CHARACTERS: Final = 16


def check_settings(settings: RouterSettings) -> None:
    """Raises ``ConfigurationError`` for the first setting that could not work."""
    POLICIES.get(settings.routing_policy)
    _check_discovery(settings)
    if settings.donors_key_file is not None:
        donors_key(settings.donors_key_file)
    if settings.tokenizer is not None:
        _check_file(settings.tokenizer / "tokenizer.json", f"--tokenizer {settings.tokenizer}")
    if settings.admin_port:
        read_admin_key(settings.admin_api_key_file)
    for name in ("latency_model", "tls_cert_file", "tls_key_file", "admin_tls_cert_file", "admin_tls_key_file"):
        path: Path | None = getattr(settings, name)
        if path is not None:
            _check_file(path, f"--{name.replace('_', '-')}")


def replicas_of(settings: RouterSettings, texts: tuple[str, ...]) -> tuple[Endpoint, ...]:
    """The replicas that a list names."""
    if settings.discovery != "static":
        raise ConfigurationError("the replicas come from Kubernetes: scale the service instead")
    if not texts:
        raise ConfigurationError(
            "no replicas: give --replicas http://host:port,... or SEMANTICKV_REPLICAS, or router.replicas in the TOML "
            "file"
        )
    endpoints = tuple(parse_replicas(texts))
    if settings.donors_key_file is None and any(each.donors for each in endpoints):
        raise ConfigurationError("replicas announce donors: give --donors-key-file the key their engines have")
    return endpoints


def donors_key(path: Path) -> bytes:
    try:
        return read_key(path)
    except ValueError as error:
        raise ConfigurationError(f"--donors-key-file: {error}") from None


def read_admin_key(path: Path | None) -> str:
    """The key in a file; it is never a flag, which every user of the machine could read."""
    if path is None:
        raise ConfigurationError("the admin surface needs a key: write one to a file and give --admin-api-key-file")
    try:
        key = path.read_text(encoding="ascii").strip()
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"--admin-api-key-file {path}: the admin key cannot be read: {said}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"--admin-api-key-file {path}: the admin key is not plain ASCII text") from None
    if len(key) < MIN_KEY_CHARACTERS:
        raise ConfigurationError(
            f"--admin-api-key-file {path}: an admin key has at least {MIN_KEY_CHARACTERS} characters"
        )
    return key


def _check_discovery(settings: RouterSettings) -> None:
    if settings.discovery not in ("static", "kubernetes"):
        raise ConfigurationError(f"--discovery is '{settings.discovery}'; write static or kubernetes")
    if settings.discovery == "static":
        replicas_of(settings, settings.replicas)
    elif not settings.kubernetes_service:
        raise ConfigurationError("discovery is kubernetes: name the service of the replicas by --kubernetes-service")
    elif settings.donors_port and settings.donors_key_file is None:
        raise ConfigurationError("--donors-port is set: give --donors-key-file the key the engines have")


def _check_file(path: Path, flag: str) -> None:
    try:
        with path.open("rb"):
            return
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"{flag}: {path} cannot be read: {said}") from None
