"""Every request comes in here, and is answered by the account, by moto, or with an AWS error.

    admin, or: whose call is it -> a fault that strikes -> the account's operation or moto -> an answer that gets lost

No answer is HTML. A request has exclusive access to the account, except long polls of a queue.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from moto.core.exceptions import ServiceException

from tidemill.model.errors import TidemillError
from tidemill.sim.wire import admin, operations, protocol
from tidemill.sim.wire.errors import (
    AnsweredByMoto,
    AwsError,
    LostAnswer,
    as_aws_error,
    dry_run,
    in_words_of,
    unknown_operation,
)
from tidemill.sim.wire.moto_pages import MotoPages
from tidemill.sim.wire.operations import ApiCall, Operation
from tidemill.sim.wire.passed_to_moto import is_moto_s
from tidemill.sim.wire.protocol import Reply, Target
from tidemill.sim.wire.state import ReceivedCall, Wire

log = logging.getLogger(__name__)

App = Callable[[dict[str, Any], Any], Iterable[bytes]]
# A long poll holds no turn: time must go on while somebody waits for a message.
_WAITING = {("sqs", "ReceiveMessage")}
_READS = ("Describe", "Get", "List", "Receive")
# Answered for other regions too, as far as the account may use them: people search there and buy here.
_IN_OTHER_REGIONS = (("ec2", "DescribeCapacityBlockOfferings"),)
_EVERYWHERE = ("sts", "pricing", "iam", "s3")  # served from regions of their own


class Dispatcher:
    def __init__(self, wire: Wire, moto_app: Any) -> None:
        self._wire, self._moto_app = wire, moto_app
        self._closed = False
        self._moto_pages = MotoPages()

    def close(self) -> None:
        """The request that is running is answered; later ones are not."""
        with self._wire.clock.turn():
            self._closed = True

    def answer(self, environ: dict[str, Any]) -> Reply:
        """LostAnswer: there is none."""
        _buffer(environ)
        if environ["PATH_INFO"].startswith("/tidemill"):
            return admin.answer(self._wire, environ)
        target = protocol.target(environ)
        try:
            with self._turn(target):
                return self._answer_with_faults(target, environ)
        except AwsError as error:
            return protocol.refusal(target, in_words_of(target.service if target else "", error))
        except LostAnswer:
            raise
        except Exception as error:
            log.exception("%s failed", target)
            said = AwsError("InternalFailure", f"the simulator failed: {type(error).__name__}: {error}", 500)
            return protocol.refusal(target, said)

    def _turn(self, target: Target | None) -> AbstractContextManager[Any]:
        if target is not None and (target.service, target.action) in _WAITING:
            return nullcontext()
        return self._wire.clock.turn()

    def _answer_with_faults(self, target: Target | None, environ: dict[str, Any]) -> Reply:
        if self._closed:
            raise LostAnswer("the server has been stopped")
        self._note(target)
        fault = self._wire.faults.strike(target.action if target else "", self._wire.clock.now())
        if fault is not None and fault.kind == "error":
            raise fault.error()
        if fault is not None and fault.kind == "lost-request":
            raise LostAnswer("the request never arrived")
        try:
            answer = self._serve(target, environ)
        except AwsError:
            if fault is not None:
                raise LostAnswer("the answer got lost") from None
            raise
        if fault is not None and fault.kind == "error-after":
            raise fault.error()
        if fault is not None:
            raise LostAnswer("the answer got lost")
        return answer

    def _note(self, target: Target | None) -> None:
        """Who asked for a change; reads are not kept."""
        if target is not None and not target.action.startswith(_READS):
            now, wall = self._wire.clock.exactly()
            self._wire.calls.append(ReceivedCall(now, wall, target.key, target.action))

    def _serve(self, target: Target | None, environ: dict[str, Any]) -> Reply:
        if target is None and not _needs_no_signature(environ):
            raise AwsError("MissingAuthenticationToken", "Request is missing Authentication Token", 403)
        if target is None:
            return self._ask_moto(target, environ)
        self._check_region(target)
        ours = operations.find(target.service, target.action)
        if ours is None:
            if not is_moto_s(target.service, target.action):
                raise unknown_operation(target.service, target.action)
            return self._ask_moto_properly(target, environ)
        try:
            return self._ask_account(ours, target, environ)
        except AnsweredByMoto:
            return self._ask_moto_properly(target, environ)

    def _check_region(self, target: Target) -> None:
        if (target.service, target.action) in _IN_OTHER_REGIONS:
            return
        if target.region != self._wire.region and target.service not in _EVERYWHERE:
            raise AwsError(
                "OptInRequired",
                f"the simulated account is in {self._wire.region}, not in {target.region}",
                403,
            )

    def _ask_account(self, ours: Operation, target: Target, environ: dict[str, Any]) -> Reply:
        params = protocol.parameters(target, environ)
        try:
            call = ApiCall(self._wire, target.service, target.action, target.region, params, target.key)
            result = ours(call)
        except TidemillError as error:
            raise as_aws_error(error) from error
        except ServiceException as error:  # something of moto's that was looked up is not there
            raise AwsError(error.code, error.message) from error
        return protocol.reply(target, result)

    def _ask_moto_properly(self, target: Target, environ: dict[str, Any]) -> Reply:
        """moto carries out many a dry run of EC2's, and gives lists whole."""
        if target.service != "ec2":
            return self._ask_moto(target, environ)
        params = protocol.parameters(target, environ)
        page = self._moto_pages.begun(params)
        if page is not None:
            return 200, {"Content-Type": "text/xml;charset=UTF-8"}, page
        if params.get("DryRun"):
            raise dry_run()
        status, headers, body = self._ask_moto(target, environ)
        if status == 200 and target.action.startswith("Describe"):
            body = self._moto_pages.first(params, body)
        return status, headers, body

    def _ask_moto(self, target: Target | None, environ: dict[str, Any]) -> Reply:
        environ["wsgi.input"].seek(0)
        environ["HTTP_X_MOTO_ACCOUNT_ID"] = self._wire.account
        said: dict[str, Any] = {}

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
            said["status"], said["headers"] = int(status.split(" ", 1)[0]), headers

        try:
            body = b"".join(self._app(target, environ)(environ, start_response))
        except NotImplementedError:
            raise unknown_operation(*_named(target)) from None
        if body[:15].lower().startswith((b"<!doctype html", b"<html")):
            raise unknown_operation(*_named(target))
        skipped = ("content-length", "connection", "date", "server")
        headers = {name: value for name, value in said["headers"] if name.lower() not in skipped}
        return said["status"], headers, body

    def _app(self, target: Target | None, environ: dict[str, Any]) -> App:
        """moto's application for a service. For an unknown service moto fails in several ways."""
        try:
            return self._moto_app.get_application(environ)  # type: ignore[no-any-return]
        except (AttributeError, KeyError, ImportError):
            raise unknown_operation(*_named(target)) from None


def _named(target: Target | None) -> tuple[str, str]:
    return (target.service, target.action) if target is not None else ("", "")


def _needs_no_signature(environ: dict[str, Any]) -> bool:
    """Calls that prove the caller in another way, such as with a pod's token."""
    return b"Action=AssumeRoleWith" in environ["wsgi.input"].getvalue()


def _buffer(environ: dict[str, Any]) -> None:
    """Read the body once, so that it can be read again: by us, then perhaps by moto."""
    whole = environ.get("wsgi.input_terminated")
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read() if whole else environ["wsgi.input"].read(length) if length else b""
    environ["wsgi.input"] = io.BytesIO(body)
    environ["CONTENT_LENGTH"] = str(len(body))
    environ.pop("wsgi.input_terminated", None)
    environ.pop("HTTP_TRANSFER_ENCODING", None)
