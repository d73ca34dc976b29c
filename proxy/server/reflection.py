"""gRPC's reflection: tells tools such as grpcurl which services there are.  Source: `reflection.proto`, v1alpha."""

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection_pb2 as wire

from proxy.server.protocol import Aborted, Exchange, Handler, Handlers, StatusCode

SERVICE_NAME: Final = wire.DESCRIPTOR.services_by_name["ServerReflection"].full_name


class Reflection:
    """Answers about the services with these names, and about itself."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted({SERVICE_NAME, *names})
        self._pool = descriptor_pool.Default()

    def handlers(self) -> Handlers:
        """Return the handlers of the service."""
        return {f"/{SERVICE_NAME}/ServerReflectionInfo": Handler(self._serve, False)}

    async def _serve(self, exchange: Exchange) -> None:
        while type(raw := await exchange.read()) is bytes:
            try:
                request = wire.ServerReflectionRequest.FromString(raw)
            except DecodeError:
                text = "ServerReflectionRequest cannot be read"
                raise Aborted(StatusCode.INVALID_ARGUMENT, text) from None
            await exchange.write(self._answer(request).SerializeToString())

    def _answer(self, request: Any) -> Any:
        answer = wire.ServerReflectionResponse(original_request=request)
        try:
            self._fill(answer, request, request.WhichOneof("message_request"))
        except KeyError:
            answer.error_response.error_code = StatusCode.NOT_FOUND
            answer.error_response.error_message = "not found"
        return answer

    def _fill(self, answer: Any, request: Any, kind: str | None) -> None:
        """Fill an answer.  Raises KeyError for what is not there."""
        pool: Any = self._pool
        if kind == "list_services":
            for name in self._names:
                answer.list_services_response.service.add(name=name)
        elif kind == "file_by_filename":
            _add_files(answer, pool.FindFileByName(request.file_by_filename))
        elif kind == "file_containing_symbol":
            _add_files(answer, pool.FindFileContainingSymbol(request.file_containing_symbol))
        elif kind == "file_containing_extension":
            asked = request.file_containing_extension
            message = pool.FindMessageTypeByName(asked.containing_type)
            _add_files(answer, pool.FindExtensionByNumber(message, asked.extension_number).file)
        elif kind == "all_extension_numbers_of_type":
            message = pool.FindMessageTypeByName(request.all_extension_numbers_of_type)
            answer.all_extension_numbers_response.base_type_name = message.full_name
            numbers = sorted(one.number for one in pool.FindAllExtensions(message))
            answer.all_extension_numbers_response.extension_number.extend(numbers)
        else:
            answer.error_response.error_code = StatusCode.INVALID_ARGUMENT
            answer.error_response.error_message = "the request asks for nothing"


def _add_files(answer: Any, file: Any) -> None:
    """Add a file and all that it imports."""
    found: dict[str, Any] = {}
    waiting = [file]
    while waiting:
        one = waiting.pop()
        if one.name not in found:
            found[one.name] = one
            waiting += one.dependencies
    answer.file_descriptor_response.file_descriptor_proto.extend(one.serialized_pb for one in found.values())
