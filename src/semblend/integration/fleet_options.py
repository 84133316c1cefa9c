"""What a deployment may choose about sharing donors with other replicas. Nothing is shared by default.

Donors have objects of their own in a store (``FleetOptions``), or their KV is in the pages that the engine itself keeps
in a storage shared by its replicas (``SharedPagesOptions``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.settings import section
from sembase.values import Parser, filled_text, optional, path, seconds, whole

_TOGETHER: Final = ("fleet_store", "fleet_directory", "fleet_key_file")


@dataclass(frozen=True, slots=True)
class FleetOptions:
    fleet_store: str | None = None
    fleet_directory: str | None = None
    fleet_key_file: Path | None = None
    fleet_store_bytes: int = 1 << 40
    fleet_wait_seconds: float = 2.0

    def __post_init__(self) -> None:
        missing = [name for name in _TOGETHER if getattr(self, name) is None]
        if 0 < len(missing) < len(_TOGETHER):
            raise ConfigurationError(f"{', '.join(_TOGETHER)} belong together; set {' and '.join(missing)} as well")

    @property
    def is_on(self) -> bool:
        return self.fleet_store is not None

    @property
    def places(self) -> tuple[str, str, Path]:
        """Store, directory and key file of a fleet that is on."""
        if self.fleet_store is None or self.fleet_directory is None or self.fleet_key_file is None:
            raise ConfigurationError(f"donors are not shared; set {', '.join(_TOGETHER)}")
        return self.fleet_store, self.fleet_directory, self.fleet_key_file


@dataclass(frozen=True, slots=True)
class SharedPagesOptions:
    fleet_directory: str | None = None
    fleet_key_file: Path | None = None
    fleet_wait_seconds: float = 2.0
    fleet_host_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if (self.fleet_directory is None) != (self.fleet_key_file is None):
            raise ConfigurationError("fleet_directory and fleet_key_file belong together; set both")

    @property
    def places(self) -> tuple[str, Path] | None:
        """Directory and key file; None where nothing is shared."""
        if self.fleet_directory is None or self.fleet_key_file is None:
            return None
        return self.fleet_directory, self.fleet_key_file


_ROWS: Final[Mapping[str, tuple[Parser[Any], str]]] = {
    "fleet_store": (
        optional(filled_text),
        "URL of the store through which replicas share donor KV, such as `file:///mnt/kv` or "
        "`mooncake://master:50051`: see [fleet](fleet.md). `null` shares nothing.",
    ),
    "fleet_directory": (
        optional(filled_text),
        "URL of the directory through which replicas find each other's donors, such as `valkey://localhost:6379`. "
        "Several servers share its entries: URLs separated by commas, the same on every replica.",
    ),
    "fleet_key_file": (
        optional(path),
        "File with the fleet's secret, at least 32 bytes, the same on every replica. A process that has it can write "
        "donors that every replica accepts.",
    ),
    "fleet_store_bytes": (
        whole(1 << 20),
        "Maximum bytes of all donors in `fleet_store`, of all replicas together. Mooncake Store has bounds of its own.",
    ),
    "fleet_wait_seconds": (
        seconds,
        "Maximum time a request waits for donors of other replicas. Donors that arrive later serve later requests.",
    ),
}


_SHARED_PAGES_ROWS: Final[Mapping[str, tuple[Parser[Any], str]]] = {
    **{name: _ROWS[name] for name in ("fleet_directory", "fleet_key_file", "fleet_wait_seconds")},
    "fleet_host_bytes": (
        whole(1 << 20),
        "Host memory for KV read for donors of other replicas, in bytes. The donors used longest ago leave first.",
    ),
}


def shared_pages_options() -> Any:
    """The field ``fleet`` of an adapter whose engine keeps the donors' KV in a shared storage."""
    return section(SharedPagesOptions(), _SHARED_PAGES_ROWS)


def fleet_options() -> Any:
    """The field ``fleet`` of an adapter that can share donors."""
    return section(FleetOptions(), _ROWS)
