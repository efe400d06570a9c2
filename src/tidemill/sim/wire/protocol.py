"""AWS's wire protocols: from an HTTP request to a named call with typed parameters, and back to bytes.

moto's readers and writers, which go by botocore's own models, do most of the work; EC2's long lists have a writer of
their own, and errors are written here, because moto gives no status to a code outside a service's model. Knows nothing
of what any call does.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

from tidemill.sim.wire.errors import AwsError

Reply = tuple[int, dict[str, str], bytes]

# Where the name in a signature is not the name of botocore's model.
_MODEL_OF = {
    "elasticloadbalancing": "elbv2",
    "monitoring": "cloudwatch",
    "tagging": "resourcegroupstaggingapi",
    "email": "sesv2",
}
_SIGNED = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/,]+)/aws4_request")
_SIGNED_URL = re.compile(r"X-Amz-Credential=([^/%]+)(?:/|%2F)\d+(?:/|%2F)([^/%]+)(?:/|%2F)([^/%]+)(?:/|%2F)")
_XML_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_EC2_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_serial = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Target:
    """What a request calls. `operation` is botocore's model of it; None: there is no such operation."""

    service: str
    region: str
    action: str
    protocol: str
    key: str = ""  # the access key it was signed with
    operation: Any = None
    uri: Mapping[str, Any] | None = None


def target(environ: dict[str, Any]) -> Target | None:
    """None: the request is not signed, so it says neither service nor region."""
    signed = _SIGNED.search(environ.get("HTTP_AUTHORIZATION", "")) or _SIGNED_URL.search(
        environ.get("QUERY_STRING", "")
    )
    if signed is None:
        return None
    key, region, service = signed[1], signed[2], signed[3].lower()
    model = _model(service)
    if model is None:
        return Target(service, region, "", "json", key)
    from moto.core.request import determine_request_protocol
    from moto.core.routing import get_service_router
    from werkzeug.exceptions import HTTPException

    request = _request(environ)
    try:
        protocol = determine_request_protocol(model, request.content_type)
        operation, uri = get_service_router(_MODEL_OF.get(service, service)).match(request)
    except (HTTPException, NotImplementedError):
        return Target(service, region, _said(environ, request), str(model.protocol), key)
    return Target(service, region, str(operation.name), protocol, key, operation, uri)


def parameters(asked: Target, environ: dict[str, Any]) -> dict[str, Any]:
    """Typed by the model: numbers, instants, lists."""
    from moto.core.parse import PROTOCOL_PARSERS, RequestParserError

    request = _request(environ)
    fields: Any = {
        "method": request.method,
        "values": request.values,
        "headers": request.headers,
        "body": request.data,
        "url_path": request.path,
        "url_params": asked.uri or {},
    }
    try:
        parsed = PROTOCOL_PARSERS[asked.protocol](asked.operation).parse(fields) or {}
    except (RequestParserError, ValueError, TypeError, KeyError, OverflowError, RuntimeError) as error:
        raise AwsError("InvalidParameterValue", f"the request cannot be read: {error}") from error
    return {name: _aware(value) for name, value in parsed.items()}


def reply(asked: Target, result: Mapping[str, Any]) -> Reply:
    from moto.core.serialize import SerializationContext, XFormedAttributePicker, get_serializer_class

    id_ = request_id()
    if asked.protocol == "ec2":
        text = ec2_xml(asked.operation, result, id_)
        return 200, {"Content-Type": "text/xml;charset=UTF-8", "x-amzn-requestid": id_}, text.encode()
    writer = get_serializer_class(_MODEL_OF.get(asked.service, asked.service), asked.protocol)(
        operation_model=asked.operation,
        context=SerializationContext(id_),
        value_picker=XFormedAttributePicker(),
    )
    written = writer.serialize(dict(result))
    body = written["body"]
    headers = {**written["headers"], "x-amzn-requestid": id_}
    return written["status_code"], headers, body.encode() if isinstance(body, str) else body


def refusal(asked: Target | None, error: AwsError) -> Reply:
    id_ = request_id()
    headers = {"x-amzn-requestid": id_, "x-amzn-errortype": error.code, "Content-Type": "text/xml"}
    fault = "Receiver" if error.status >= 500 else "Sender"
    code, message = escape(error.code), escape(error.message)
    match asked.protocol if asked is not None else "query":
        case "ec2":
            inside = f"<Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
            body = f"<Response>{inside}<RequestID>{id_}</RequestID></Response>"
        case "query" | "rest-xml" if asked is None or asked.service != "s3":
            inside = f"<Error><Type>{fault}</Type><Code>{code}</Code><Message>{message}</Message></Error>"
            body = f"<ErrorResponse>{inside}<RequestId>{id_}</RequestId></ErrorResponse>"
        case "rest-xml":
            body = (
                f"<Error><Code>{code}</Code><Message>{message}</Message><RequestId>{id_}</RequestId></Error>"
            )
        case protocol:
            headers["Content-Type"] = (
                "application/json" if protocol == "rest-json" else "application/x-amz-json-1.1"
            )
            body = json.dumps({"__type": error.code, "message": error.message, **error.fields})
    return error.status, headers, body.encode()


def request_id() -> str:
    return f"{next(_serial):08x}-7469-6465-6d69-6c6c00000000"


def _aware(value: Any) -> Any:
    """AWS's instants are UTC, and are read without saying so."""
    match value:
        case datetime(tzinfo=None):
            return value.replace(tzinfo=UTC)
        case dict():
            return {name: _aware(item) for name, item in value.items()}
        case list():
            return [_aware(item) for item in value]
        case _:
            return value


@functools.cache
def _model(service: str) -> Any:
    from botocore.exceptions import UnknownServiceError
    from moto.core.utils import get_service_model

    try:
        return get_service_model(_MODEL_OF.get(service, service))
    except UnknownServiceError:
        return None


def _request(environ: dict[str, Any]) -> Any:
    from moto.core.request import Request

    environ["wsgi.input"].seek(0)
    return Request(dict(environ))


def _said(environ: dict[str, Any], request: Any) -> str:
    """The name that the request itself gives to an operation that is in no model."""
    target_header = str(environ.get("HTTP_X_AMZ_TARGET", ""))
    return str(request.values.get("Action", "")) or target_header.rsplit(".", 1)[-1]


def ec2_xml(operation: Any, result: Mapping[str, Any], request_id: str) -> str:
    """EC2's answers, by botocore's model of the call. moto can write them too, ten times as slowly.

    Every name in the result must be one of the model's; what is None is left out.
    """
    out = [
        _XML_HEAD,
        f'<{operation.name}Response xmlns="{_EC2_NAMESPACE}"><requestId>{request_id}</requestId>',
    ]
    if operation.output_shape is not None:
        _structure(operation.output_shape, result, out)
    out.append(f"</{operation.name}Response>")
    return "".join(out)


def _structure(shape: Any, value: Mapping[str, Any], out: list[str]) -> None:
    members = _members(shape)
    for name, inner in value.items():
        if inner is not None:
            tag, member = members[name]
            _element(tag, member, inner, out)


def _element(tag: str, shape: Any, value: Any, out: list[str]) -> None:
    kind = shape.type_name
    if kind == "list" and shape.serialization.get("flattened"):
        for inner in value:
            _element(tag, shape.member, inner, out)
        return
    if kind == "structure":
        out.append(f"<{tag}>")
        _structure(shape, value, out)
        out.append(f"</{tag}>")
    elif kind == "list":
        item = shape.member.serialization.get("name", "item")
        out.append(f"<{tag}>")
        for inner in value:
            _element(item, shape.member, inner, out)
        out.append(f"</{tag}>")
    else:
        out.append(f"<{tag}>{_scalar(value)}</{tag}>")


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}.000Z"
    return escape(value if isinstance(value, str) else str(value))


@cache
def _members(shape: Any) -> dict[str, tuple[str, Any]]:
    """Name in the model -> name on the wire, and what it is. Shapes live as long as the process."""
    return {name: (member.serialization.get("name", name), member) for name, member in shape.members.items()}
