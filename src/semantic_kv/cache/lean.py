"""Recompiles policy hooks for the compiled loop, without Python entry points and without reference counts.

A hook comes in as its author decorated it, so that tests can call it; a copy for the loop goes out. Hooks that do
nothing cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from semantic_kv.policy.interface import no_op, no_op_after, worth_nothing
from sembase.compiled import HAS_COMPILER, compile_cached

Part = Callable[..., Any]
# Without the runtime no array is reference-counted: a field of a tuple of arrays costs a load, not two atomic writes.
# The price: nothing in the loop may allocate.
_FLAGS = {"nogil": True, "_nrt": False}
_NOTHING: dict[Any, Part] = {}

if HAS_COMPILER:
    import numba
    from numba.core import types
    from numba.extending import intrinsic

    _IS_COMPILING = not numba.config.DISABLE_JIT
else:
    _IS_COMPILING = False

if _IS_COMPILING:

    @intrinsic  # type: ignore[untyped-decorator]
    def _no_op(context: Any, cache: Any, state: Any, node: Any) -> Any:
        return types.void(cache, state, node), lambda context, builder, signature, arguments: context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator]
    def _no_op_after(context: Any, cache: Any, state: Any) -> Any:
        return types.void(cache, state), lambda context, builder, signature, arguments: context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator]
    def _worth_nothing(context: Any, cache: Any, state: Any, node: Any) -> Any:
        def zero(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return context.get_constant(types.float64, 0.0)

        return types.float64(cache, state, node), zero

    _NOTHING = {no_op: _no_op, no_op_after: _no_op_after, worth_nothing: _worth_nothing}


def lean_part(function: Part, copies: dict[Part, Part]) -> Part:
    """A copy of a part and, by way of `copies`, of every part it calls."""
    if not _IS_COMPILING or function in _NOTHING:
        return _NOTHING.get(function, function)
    if function not in copies:
        plain = getattr(function, "py_func", function)
        names = dict(plain.__globals__)
        for name in plain.__code__.co_names:
            if hasattr(names.get(name), "py_func"):
                names[name] = lean_part(names[name], copies)
        copies[function] = compiled_part(FunctionType(plain.__code__, names, plain.__name__))
    return copies[function]


def compiled_part(function: Part, *, inline: bool = True) -> Part:
    if not _IS_COMPILING:
        return function
    lean: Part = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=inline, **_FLAGS)(function)
    return lean


def compiled_loop(function: Part) -> tuple[Part, Path | None]:
    """The entry from Python, and the folder that keeps its machine code, if one is writable."""
    return compile_cached(function, **_FLAGS) if _IS_COMPILING else (function, None)
