"""The cache itself: a compiled core, a plain-Python oracle of it, and what one run gives."""
