"""The gRPC health service of a picker: alive as soon as it answers, ready as /readyz is."""

from __future__ import annotations

from typing import Any, Final

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from semgate.picker.ext_proc import ExternalProcessor

LIVENESS: Final = "liveness"
READY_SERVICES: Final = ("", "readiness", ExternalProcessor.name)


class Health:
    """The service ``grpc.health.v1.Health``; ``Check`` only, which is what kubelets and data planes call."""

    name: Final = "grpc.health.v1.Health"

    def __init__(self, processor: ExternalProcessor) -> None:
        self._processor = processor

    def handler(self) -> Any:
        check = grpc.unary_unary_rpc_method_handler(
            self.check, HealthCheckRequest.FromString, HealthCheckResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(self.name, {"Check": check})

    async def check(self, request: Any, context: Any) -> Any:
        if request.service == LIVENESS:
            return HealthCheckResponse(status=HealthCheckResponse.SERVING)
        if request.service not in READY_SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        ready = self._processor.readiness()["status"] == "ready"
        return HealthCheckResponse(status=HealthCheckResponse.SERVING if ready else HealthCheckResponse.NOT_SERVING)
