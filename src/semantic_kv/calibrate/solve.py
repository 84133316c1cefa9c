"""Non-negative least squares, plain and robust, in numpy: a matrix, a target and weights in, coefficients out."""

from __future__ import annotations

from typing import Final

import numpy as np

from sembase.latency import Floats

_TOLERANCE: Final = 1e-10
_HUBER: Final = 1.345  # 95 % as efficient as least squares where the noise is normal
_NORMAL_MAD: Final = 1.4826
_ROBUST_ROUNDS: Final = 12


def non_negative(matrix: Floats, target: Floats) -> Floats:
    """Lawson-Hanson active set on the normal equations; columns are scaled, as token and pair counts differ by 1e6."""
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0.0] = 1.0
    scaled = matrix / scale
    gram, toward = scaled.T @ scaled, scaled.T @ target
    count = gram.shape[0]
    unbound = _solved(gram, toward)
    if (unbound >= 0.0).all():  # no bound is active, so this is the optimum
        return np.asarray(unbound / scale, dtype=np.float64)
    free = np.zeros(count, dtype=np.bool_)
    solution = np.zeros(count)
    for _ in range(3 * count + 10):
        gradient = toward - gram @ solution
        gradient[free] = -np.inf
        entering = int(np.argmax(gradient))
        if gradient[entering] <= _TOLERANCE * max(1.0, float(np.abs(toward).max())):
            break
        free[entering] = True
        solution = _feasible(gram, toward, solution, free)
    return np.asarray(solution / scale, dtype=np.float64)


def _feasible(gram: Floats, toward: Floats, start: Floats, free: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    """Least squares over the free coefficients; a coefficient that would become negative is fixed at zero again."""
    current = start
    while True:
        wanted = np.zeros_like(current)
        wanted[free] = _solved(gram[np.ix_(free, free)], toward[free])
        negative = free & (wanted <= 0.0)
        if not negative.any():
            return wanted
        gap = current[negative] - wanted[negative]
        steps = np.divide(current[negative], gap, out=np.zeros_like(gap), where=gap > 0.0)
        current = current + float(steps.min()) * (wanted - current)
        free &= current > _TOLERANCE
        current = np.where(free, current, 0.0)
        if not free.any():
            return current


def _solved(gram: Floats, toward: Floats) -> Floats:
    try:
        return np.asarray(np.linalg.solve(gram, toward), dtype=np.float64)
    except np.linalg.LinAlgError:  # linearly dependent columns: any of their mixtures is a solution
        return np.asarray(np.linalg.lstsq(gram, toward, rcond=None)[0], dtype=np.float64)


def robust_non_negative(matrix: Floats, target: Floats, weights: Floats) -> Floats:
    """Weighted fit in which large residuals count by their size, not its square (Huber)."""
    root = np.sqrt(weights)[:, None]
    rows, wanted = matrix * root, target * root[:, 0]
    solution = non_negative(rows, wanted)
    counted = weights > 0.0
    for _ in range(_ROBUST_ROUNDS):
        residual = np.abs(wanted - rows @ solution)
        spread = _NORMAL_MAD * float(np.median(residual[counted])) if counted.any() else 0.0
        if spread <= 1e-12:
            break
        trust = np.sqrt(np.minimum(1.0, _HUBER * spread / np.maximum(residual, 1e-12)))
        updated = non_negative(rows * trust[:, None], wanted * trust)
        converged = np.allclose(updated, solution, rtol=1e-5, atol=1e-12)
        solution = updated
        if converged:
            break
    return solution


def unexplained_fraction(matrix: Floats, column: int) -> float:
    """The fraction of a column that the others do not explain; near 0, its coefficient is arbitrary."""
    target = matrix[:, column]
    size = float(target @ target)
    if size == 0.0:
        return 0.0
    others = np.delete(matrix, column, axis=1)
    if others.shape[1] == 0:
        return 1.0
    scale = np.linalg.norm(others, axis=0)
    others = others[:, scale > 0.0] / scale[scale > 0.0]
    left = target - others @ np.linalg.lstsq(others, target, rcond=None)[0]
    return float(left @ left) / size
