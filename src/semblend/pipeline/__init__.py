"""Where the stages meet: fingerprint -> search -> align -> plan."""

from semblend.pipeline.planner import Planner

__all__ = ["Planner"]
