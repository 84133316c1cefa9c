"""Admission policies, one file each: a plain-Python reference and the compiled hooks that must decide the same."""
