"""SemBench: builds workloads, replays them, and says what was found, what was confirmed and what was not measured."""

from semblend._version import __version__

__all__ = ["__version__"]
