"""Compiled hooks written once for a family of policies: each gets a copy in which these names call its own functions.

Not closures: the compiled loop copies hooks by their globals (`cache.lean`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from sembase.compiled import kernel_part

Part = Callable[..., Any]


def filled(template: Any, **parts: Part) -> Any:
    """The template with these parts in place of its module's names."""
    return kernel_part(FunctionType(template.__code__, {**template.__globals__, **parts}, template.__name__))
