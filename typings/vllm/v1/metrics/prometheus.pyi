from typing import Any

REGISTRY: Any
