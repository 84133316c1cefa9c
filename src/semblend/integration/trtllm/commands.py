"""The leader's commands to the workers, once per step: plain values, because the engine broadcasts them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadCommand:
    """Pages ``first_block`` and following of a stored donor into the engine's pages ``block_ids``."""

    request_id: int
    donor_id: str
    first_block: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SaveCommand:
    """The engine's pages ``block_ids`` become the donor's, as soon as this step's forward pass is done."""

    donor_id: str
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepCommands:
    """Loads first, then what is dropped, then what is saved."""

    loads: tuple[LoadCommand, ...] = ()
    drops: tuple[str, ...] = ()
    saves: tuple[SaveCommand, ...] = ()
