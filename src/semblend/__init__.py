"""SemBlend: find repeated content anywhere in a prompt, prove it token by token, plan its reuse."""

from typing import TYPE_CHECKING, Any

from sembase import former_modules
from semblend._version import __version__
from semblend.contract import UNKNOWN, Decline, DeclineReason, Discovery, Namespace, ReusePlan, Run, TokenRange
from semblend.settings import Settings

if TYPE_CHECKING:
    from semblend.pipeline import Planner
    from semblend.plan.gates import Gates

__all__ = [
    "UNKNOWN",
    "Decline",
    "DeclineReason",
    "Discovery",
    "Gates",
    "Namespace",
    "Planner",
    "ReusePlan",
    "Run",
    "Settings",
    "TokenRange",
    "__version__",
]


former_modules.install()


def __getattr__(name: str) -> Any:
    """The planner and its compiled loops are loaded when asked for: the contract alone stays light to import."""
    if name == "Planner":
        from semblend.pipeline import Planner  # noqa: PLC0415

        return Planner
    if name == "Gates":
        from semblend.plan.gates import Gates  # noqa: PLC0415

        return Gates
    raise AttributeError(f"module 'semblend' has no attribute '{name}'")
