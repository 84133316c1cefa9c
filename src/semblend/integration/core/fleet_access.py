"""One process's access to the fleet: its secret, its directory and, where donors have objects of their own, a store."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError
from semblend.contract.donor_event import read_key
from semblend.fleet.carrier.base import KvCarrier, open_carrier
from semblend.fleet.directory.base import open_directory
from semblend.fleet.keys import SpaceKeys
from semblend.integration.fleet_options import FleetOptions

MAX_SPACES: Final = 1024  # whose keys are kept; the others are derived again


class DirectoryAccess:
    """The secret and the directory. Connects on first use. Thread-safe."""

    def __init__(self, directory: str, key_file: Path) -> None:
        try:
            secret = read_key(key_file)
        except ValueError as error:
            raise ConfigurationError(f"fleet_key_file: {error}") from None
        SpaceKeys.derive(secret, "")  # a secret that is too short stops the start-up
        self.keys = lru_cache(MAX_SPACES)(partial(SpaceKeys.derive, secret))
        self.directory = open_directory(directory)


class FleetAccess(DirectoryAccess):
    """The store as well."""

    def __init__(self, options: FleetOptions) -> None:
        store, directory, key_file = options.places
        super().__init__(directory, key_file)
        self._store = (store, options.fleet_store_bytes)

    def open_carrier(self) -> KvCarrier:
        return open_carrier(*self._store)
