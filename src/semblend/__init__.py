"""SemBlend: find repeated content anywhere in a prompt, prove it token by token, plan its reuse."""

from typing import TYPE_CHECKING, Any

from semblend._version import __version__
from semblend.contract import Decline, DeclineReason, Namespace, ReusePlan
from semblend.settings import Settings

if TYPE_CHECKING:
    from semblend.pipeline import Planner
    from semblend.plan.gates import Gates

__all__ = ["Decline", "DeclineReason", "Gates", "Namespace", "Planner", "ReusePlan", "Settings", "__version__"]


def __getattr__(name: str) -> Any:
    """The planner and its compiled loops are loaded when asked for: the contract alone stays light to import."""
    if name == "Planner":
        from semblend.pipeline import Planner  # noqa: PLC0415

        return Planner
    if name == "Gates":
        from semblend.plan.gates import Gates  # noqa: PLC0415

        return Gates
    raise AttributeError(f"module 'semblend' has no attribute '{name}'")
