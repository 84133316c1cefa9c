"""``uvicorn apps.api.main:app``: the simulator's service with its defaults; ``kvmend simulate serve`` takes options."""

from semantic_kv.api import create_app

app = create_app()
