"""Messages of Envoy's external processing service, read and made: the only module that knows their fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.type.v3.http_status_pb2 import HttpStatus
from google.protobuf.struct_pb2 import Struct

from semgate.http.faults import Fault
from semgate.http.headers import Headers
from semgate.http.served_paths import decoded_path
from semgate.picker.pick import DESTINATION, SERVED, SUBSET, RequestHead

NONE: Final[int] = ProcessingMode.NONE
STREAMED: Final[int] = ProcessingMode.STREAMED
BUFFERED: Final[int] = ProcessingMode.BUFFERED
BUFFERED_PARTIAL: Final[int] = ProcessingMode.BUFFERED_PARTIAL
FULL_DUPLEX: Final[int] = ProcessingMode.FULL_DUPLEX_STREAMED
SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"
PICKED_NAMESPACE: Final = "envoy.lb"
FILTER: Final = "envoy.filters.http.ext_proc"
UPSTREAM_ADDRESS: Final = "upstream.address"
CHUNK_BYTES: Final = 62 * 1024  # Envoy's own limit for a streamed body response is 64 KB
_OVERWRITE: Final = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
Message = Any  # the generated classes have no types
ProcessingRequest: Final[Any] = ext_proc.ProcessingRequest
ProcessingResponse: Final[Any] = ext_proc.ProcessingResponse


def body_modes(message: Message) -> tuple[int, int]:
    """Of request and response. A data plane that does not say follows the standard: full duplex."""
    if not message.HasField("protocol_config"):
        return FULL_DUPLEX, FULL_DUPLEX
    return message.protocol_config.request_body_mode, message.protocol_config.response_body_mode


def headers_of(message: Message) -> Headers:
    """Names in lower case; newer data planes send values as bytes."""
    return tuple(
        (each.key.lower().encode("latin-1", "replace"), each.raw_value or each.value.encode("latin-1", "replace"))
        for each in message.headers.headers
    )


def head_of(headers: Headers) -> RequestHead:
    pseudo = {name: value.decode("latin-1") for name, value in headers if name.startswith(b":")}
    path = decoded_path(pseudo.get(b":path", "/"))
    rest = tuple(pair for pair in headers if not pair[0].startswith(b":"))
    return RequestHead(pseudo.get(b":method", "GET"), path, rest)


def subset_of(message: Message) -> tuple[str, ...] | None:
    """The endpoints the data plane allows; None if it names none, which differs from an empty list."""
    found = _metadata(message, SUBSET_NAMESPACE, SUBSET)
    if found is None:
        return None
    if found.HasField("list_value"):
        return tuple(each.string_value for each in found.list_value.values)
    return tuple(part.strip() for part in found.string_value.split(",") if part.strip())


def served_of(message: Message) -> str | None:
    """The endpoint that answered, if the data plane says so: as the protocol has it, or as Envoy's own attribute."""
    found = _metadata(message, PICKED_NAMESPACE, SERVED)
    if found is None and FILTER in message.attributes:
        found = message.attributes[FILTER].fields.get(UPSTREAM_ADDRESS)
    return None if found is None else found.string_value or None


def _metadata(message: Message, namespace: str, name: bytes) -> Message | None:
    if not message.HasField("metadata_context"):
        return None
    spaces = message.metadata_context.filter_metadata
    if namespace not in spaces or name.decode() not in spaces[namespace].fields:
        return None
    return spaces[namespace].fields[name.decode()]


def picked(set_headers: Headers, removed: tuple[bytes, ...]) -> Message:
    """The header mutation of a request that was placed."""
    options = [
        HeaderValueOption(header=HeaderValue(key=name.decode("latin-1"), raw_value=value), append_action=_OVERWRITE)
        for name, value in set_headers
    ]
    names = [name.decode("latin-1") for name in removed if name not in dict(set_headers)]
    return ext_proc.HeaderMutation(set_headers=options, remove_headers=names)


def picked_metadata(set_headers: Headers) -> Message:
    """The same destination as the header's, for data planes that read metadata."""
    metadata = Struct()
    metadata.get_or_create_struct(PICKED_NAMESPACE)[DESTINATION.decode()] = dict(set_headers)[DESTINATION].decode()
    return metadata


def request_headers(mutation: Message | None = None, metadata: Message | None = None) -> Message:
    common = None
    if mutation is not None:
        common = ext_proc.CommonResponse(header_mutation=mutation, clear_route_cache=True)
    made = ext_proc.HeadersResponse(response=common)
    return ProcessingResponse(request_headers=made, dynamic_metadata=metadata)


def buffered_body(mutation: Message, metadata: Message, changed: bytes | None) -> Message:
    """The answer to a whole request body; ``changed`` None leaves it as it is."""
    body = None if changed is None else ext_proc.BodyMutation(body=changed)
    common = ext_proc.CommonResponse(header_mutation=mutation, body_mutation=body, clear_route_cache=True)
    made = ext_proc.BodyResponse(response=common)
    return ProcessingResponse(request_body=made, dynamic_metadata=metadata)


def streamed_request(body: bytes, *, is_last: bool) -> Iterator[Message]:
    """A body in chunks; at least one, so that its end is sent."""
    for start in range(0, max(len(body), 1), CHUNK_BYTES):
        end = start + CHUNK_BYTES
        yield ProcessingResponse(request_body=_streamed(body[start:end], is_end=is_last and end >= len(body)))


def response_headers() -> Message:
    return ProcessingResponse(response_headers=ext_proc.HeadersResponse())


def response_body(data: bytes, *, is_end: bool) -> Message:
    """A chunk of a full-duplex answer, returned as it came."""
    return ProcessingResponse(response_body=_streamed(data, is_end=is_end))


def unchanged(kind: str) -> Message:
    """Lets a body or trailers pass."""
    made = ext_proc.TrailersResponse() if kind.endswith("trailers") else ext_proc.BodyResponse()
    return ProcessingResponse(**{kind: made})


def refusal(fault: Fault) -> Message:
    named: list[tuple[str, bytes]] = [("content-type", b"application/json")]
    if fault.retry_after_s is not None:
        named.append(("retry-after", str(fault.retry_after_s).encode()))
    headers = [
        HeaderValueOption(header=HeaderValue(key=name, raw_value=value), append_action=_OVERWRITE)
        for name, value in named
    ]
    made = ext_proc.ImmediateResponse(
        status=HttpStatus(code=fault.status),
        headers=ext_proc.HeaderMutation(set_headers=headers),
        body=fault.body(),
        details=fault.code,
    )
    return ProcessingResponse(immediate_response=made)


def _streamed(data: bytes, *, is_end: bool) -> Message:
    streamed = ext_proc.StreamedBodyResponse(body=data, end_of_stream=is_end)
    common = ext_proc.CommonResponse(body_mutation=ext_proc.BodyMutation(streamed_response=streamed))
    return ext_proc.BodyResponse(response=common)
