"""What stands in any text of any file: durations of Capacity Blocks in commands and calls, and URLs of Redis."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tidemill.platform.lint.edits import replaced
from tidemill.platform.lint.finding import Finding
from tidemill.platform.lint.inventory import Inventory
from tidemill.platform.lint.pods import walk
from tidemill.platform.lint.rules.stacks import resources_of
from tidemill.platform.lint.sources import Kind, Located
from tidemill.spec import traps
from tidemill.spec.located_yaml import Path

# --- TR-1 -------------------------------------------------------------------------------------------

_FIELDS = ("capacitydurationhours", "capacityblockextensiondurationhours")
_FLAG = re.compile(r"--capacity-(?:block-extension-)?duration-hours(?:[= ]+['\"]?(?P<hours>\d{1,6})\b)?")


def durations_are_sold(files: Inventory) -> Iterator[Finding]:
    for located in _everything(files):
        for path, key, value in walk(located.data):
            for hours, where, needle in _hours(located, path, key, value):
                message = traps.unsold_duration(timedelta(hours=hours))
                if message is not None:
                    yield _at_text(
                        located, where, needle, located.finding("TR-1", where, f"{hours} hours: {message}")
                    )


def _hours(located: Located, path: Path, key: str | int, value: Any) -> Iterator[tuple[int, Path, str]]:
    if (
        str(key).lower() in _FIELDS
        and not isinstance(value, bool)
        and str(value).isdigit()
        and len(str(value)) < 7
    ):
        yield int(value), path, str(value)
    if not isinstance(value, str):
        return
    for found in _FLAG.finditer(value):
        if found["hours"]:
            yield int(found["hours"]), path, found[0]
        elif isinstance(key, int) and found.end() == len(value):  # a list: the number is the next word
            following = located.get(*path[:-1], key + 1)
            if str(following).isdigit() and len(str(following)) < 7:
                yield int(str(following)), (*path[:-1], key + 1), str(following)


# --- TR-2 -------------------------------------------------------------------------------------------

_PART = r"(?:\{\{.*?\}\}|\$\{.*?\}|[^\s\"'{}$/@,])*"
_REDIS = re.compile(rf"(?<![\w-])redis://(?P<user>{_PART}@)?(?P<host>{_PART})")
# ElastiCache's own names, what people call it in a placeholder, and its attributes in CloudFormation.
_ENDPOINT = re.compile(
    r"\.cache\.amazonaws\.com|(?i:elasticache)|\.((Primary|Reader|Configuration)EndPoint|Endpoint)\.Address"
)
_ALWAYS_TLS = re.compile(r"^(master|clustercfg)\.|\.serverless\.", re.IGNORECASE)


def redis_with_tls_is_asked_with_tls(files: Inventory) -> Iterator[Finding]:
    """Certain only: the endpoint is ElastiCache's, and a token, its name or a template of the run says that it has TLS.
    Neither the URL nor its token is repeated."""
    tls = _caches_with_tls(files)
    for located in _everything(files):
        for path, _, value in walk(located.data):
            if not isinstance(value, str) or len(value) > 100_000:
                continue
            encoded = located.kind == "Secret" and path[:1] == ("data",)
            text = _decoded(value) if encoded else value
            if any(_is_plain_to_tls(found, bool(tls)) for found in _REDIS.finditer(text)):
                message = "a redis:// URL for a Redis with encryption in transit: the connection times out"
                edits = () if encoded else replaced(located, path, "redis://", "rediss://")
                fix = "encode the URL again with rediss://" if encoded else ""
                finding = located.finding("TR-2", path, message, fix=fix, edits=edits, elsewhere=tuple(tls))
                yield finding if encoded else _at_text(located, path, "redis://", finding)


def _is_plain_to_tls(found: re.Match[str], tls: bool) -> bool:
    host = found["host"].partition(":")[0] if "{" not in found["host"] else found["host"]
    if _ENDPOINT.search(host):
        return tls or bool(found["user"]) or _ALWAYS_TLS.search(host) is not None
    return tls and ("{" in host or not host)


def _caches_with_tls(files: Inventory) -> list[str]:
    """Where a stack of the run makes a cache that speaks TLS only, or a Platform says that there is one."""
    found = []
    for stack in files.stacks:
        for _, group in resources_of(stack, "AWS::ElastiCache::ReplicationGroup"):
            if (
                group.text("Properties", "TransitEncryptionEnabled").lower() == "true"
                and group.text("Properties", "TransitEncryptionMode") != "preferred"
            ):
                found.append(group.place("Properties", "TransitEncryptionEnabled"))
        found += [cache.place() for _, cache in resources_of(stack, "AWS::ElastiCache::ServerlessCache")]
    for ours in files.of(Kind.OURS):
        redis = ours.get("spec", "redis") if ours.kind == "Platform" else None
        if isinstance(redis, dict) and redis.get("tls") is not False:
            found.append(ours.place("spec", "redis"))
    return found


def _decoded(value: str) -> str:
    try:
        return b64decode(value, validate=True).decode()
    except (NotBase64, ValueError):
        return ""


# --- both -------------------------------------------------------------------------------------------


def _everything(files: Inventory) -> list[Located]:
    inside = [values for release in files.releases for values in release.values]  # seen with their owner
    return [*files.kubernetes, *(each for each in files.values if each not in inside), *files.stacks]


def _at_text(located: Located, path: Path, needle: str, finding: Finding) -> Finding:
    """The same finding, at the words themselves: a value may be a script of many lines."""
    span = located.parsed.spans.get((*located.at, *path))
    start = located.source.text.find(needle, *span) if span is not None else -1
    if start < 0:
        return finding
    line = located.source.text.count("\n", 0, start) + 1
    return replace(finding, line=line, column=start - located.source.text.rfind("\n", 0, start))
