"""``uvicorn apps.router.main:app``: the router, set up by SEMANTICKV_* and SEMGATE_* variables alone.

One worker only: two would not know of each other's load. The admin surface is the business of ``kvmend route``.
"""

from sembase.errors import SemBlendError
from semgate.router.app import RouterApp
from semgate.router.service import build_gateway
from semgate.settings import RouterSettings, config_path, load


def _settings() -> RouterSettings:
    return load(RouterSettings)


try:
    app = RouterApp(build_gateway(_settings(), reload_settings=_settings, config=config_path(None)))
except SemBlendError as error:
    raise SystemExit(f"semgate: {error}") from None
