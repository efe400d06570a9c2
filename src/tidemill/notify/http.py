"""One POST over HTTP: an answer whatever happens, within a bounded time, and nothing but http and https."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import datetime
from email.message import Message as Headers
from typing import IO
from urllib.parse import urlsplit

from tidemill import __version__
from tidemill.notify.delivery_result import Answer, of_status

TIMEOUT_S = 10.0  # to connect, and again for each read
_READ_BYTES = 2048  # of an answer; what it says after that helps nobody
_SHOWN = 200


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Following one would repeat a POST as a GET, without its body: it is an answer like any other."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Headers, newurl: str
    ) -> None:
        return None


# Proxies of the environment are used, as by any other program.
_opener = urllib.request.build_opener(_NoRedirect)


def post(
    url: str, body: bytes, headers: Mapping[str, str], now: datetime, timeout_s: float = TIMEOUT_S
) -> Answer:
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        return Answer("misconfigured", "its address does not begin with http:// or https://")
    request = urllib.request.Request(
        url, body, {"User-Agent": f"tidemill/{__version__}", "Content-Type": "application/json", **headers}
    )
    try:
        with _opener.open(request, timeout=timeout_s) as response:
            return of_status(response.status, _words(response), None, now)
    except urllib.error.HTTPError as error:
        with error:
            return of_status(error.code, _words(error), error.headers.get("Retry-After"), now)
    except urllib.error.URLError as error:
        return _unreachable(error.reason)
    except (OSError, http.client.HTTPException) as error:
        return _unreachable(error)
    except (
        ValueError
    ) as error:  # an address that urllib cannot take apart; its text holds no secret but might
        return Answer("misconfigured", f"its address cannot be used ({type(error).__name__})")


def _unreachable(reason: object) -> Answer:
    """A certificate that does not verify will not verify in a minute; everything else may pass."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return Answer("misconfigured", f"its certificate does not verify: {reason.verify_message}")
    if isinstance(reason, TimeoutError):
        return Answer("retry", "no answer in time")
    words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return Answer("retry", f"cannot be reached: {words}")


def _words(response: IO[bytes] | http.client.HTTPResponse) -> str:
    try:
        said = response.read(_READ_BYTES) if not hasattr(response, "read1") else response.read1(_READ_BYTES)
    except (OSError, http.client.HTTPException):
        return ""
    return " ".join(said.decode("utf-8", "replace").split())[:_SHOWN]
