from typing import Any

ALLOC_MEMORY_FUNCS: dict[str, Any]
