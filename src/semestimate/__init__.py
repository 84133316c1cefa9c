"""``kvmend estimate``: a trace of real traffic in, what KV reuse would save out, without an engine and without a GPU.

One pass over the requests (``estimate``) feeds the parts: what prefix caching serves (``prefix``), where prefixes break
and why (``breaks``, ``causes``), what reuse at any position adds (``anywhere``), how much cache it takes (``curve``).
The figures become seconds and money (``cost``), ``advice`` and a ``verdict``, shown by ``terminal`` and ``page``.
"""
