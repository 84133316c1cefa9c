"""``uvicorn apps.proxy.main:app``: the proxy, set up by SEMANTICKV_* and SEMGATE_* variables alone."""

from sembase.errors import SemBlendError
from semgate.proxy.service import ProxyService
from semgate.settings import ProxySettings, load

try:
    app = ProxyService(load(ProxySettings))
except SemBlendError as error:
    raise SystemExit(f"semgate: {error}") from None
