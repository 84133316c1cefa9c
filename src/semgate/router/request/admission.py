"""Who may ask, and for what: the tenant of a request, its limit, and the requests that are refused before placement.

Used by the router's client port and by the picker, whose data plane forwards the request itself.
"""

from __future__ import annotations

from typing import Final

from semgate.http.client_keys import UNAUTHORIZED, ClientKeys, Tenant
from semgate.http.faults import NO_METHOD, NO_UPGRADE, NOT_FOUND, Fault
from semgate.http.headers import Headers, find
from semgate.http.served_paths import ForwardedPaths, allows
from semgate.router.request.inspection import isolates_tenants
from semgate.settings import RouterSettings

NOT_ISOLATED: Final = Fault(
    400,
    "invalid_request_error",
    "path_not_isolated",
    "Tenants cannot be isolated on this path; use /v1/chat/completions.",
)


class Admission:
    """``clients`` None: no client is authenticated."""

    def __init__(self, settings: RouterSettings, clients: ClientKeys | None) -> None:
        self._paths = ForwardedPaths(settings.pass_paths)
        self._isolates = settings.inject_cache_salt
        self._clients = clients

    def tenant_of(self, headers: Headers) -> tuple[Tenant | None, Fault | None]:
        """The authenticated tenant, or why the request is refused; neither without a file of keys."""
        if self._clients is None:
            return None, None
        tenant = self._clients.tenant_of(headers)
        if tenant is None:
            return None, UNAUTHORIZED
        return tenant, tenant.refusal()

    def pattern_of(self, path: str) -> str:
        """The pattern that admits a path; empty if none does."""
        return self._paths.pattern_of(path) or ""

    def refusal(self, method: str, path: str, headers: Headers) -> Fault | None:
        if find(headers, b"upgrade") is not None:  # our server never passes it; uvicorn's would read on in the body
            return NO_UPGRADE
        if self._paths.pattern_of(path) is None:
            return NOT_FOUND
        if not allows(method, path):
            return NO_METHOD
        if self._isolates and not isolates_tenants(path):
            return NOT_ISOLATED
        return None
