"""Kubernetes quantities (`250m`, `1700Gi`, `1e3`) and what a pod of several containers asks for, exactly.

Rounding is Kubernetes' own: up, for a pod and for a node. The sums follow the scheduler's: containers together, or the
largest init container beside the sidecars started before it, whichever is more; then the pod's own requests in their
place, then the overhead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from tidemill.model.resources import CPU, MEMORY, Amounts

_QUANTITY = re.compile(r"([+-]?)(\d{0,40})(?:\.(\d{0,40}))?(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,3}))?")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_HUGE = 1 << 62  # a resource of a node or pod beyond this is a mistake, and its sums must stay small


@lru_cache(maxsize=65536)
def parse_quantity(text: str, scale: int = 1) -> int:
    """Times `scale`, rounded up. ValueError: not a quantity, negative, or absurdly large."""
    match = _QUANTITY.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"'{text[:40]}' is not a quantity")
    sign, whole, fraction, binary, decimal, exponent = match.groups()
    digits = int((whole or "0") + (fraction or ""))
    power = -len(fraction or "") + (_DECIMAL[decimal] if decimal else int(exponent or 0))
    if sign == "-" and digits:
        raise ValueError(f"'{text[:40]}' is negative")
    if power > 40:
        raise ValueError(f"'{text[:40]}' is too large")
    numerator, denominator = digits * scale << _BINARY.get(binary or "", 0), 1
    if power >= 0:
        numerator *= 10**power
    else:
        denominator = 10**-power
    amount = -(-numerator // denominator)
    if amount > _HUGE:
        raise ValueError(f"'{text[:40]}' is too large")
    return amount


def amount_of(resource: str, text: str) -> int:
    """CPU in milli, everything else counted (memory: bytes)."""
    return parse_quantity(text, 1000 if resource == CPU else 1)


def amounts(written: Mapping[str, str] | None) -> dict[str, int]:
    return {name: amount_of(name, text) for name, text in (written or {}).items()}


def as_amounts(counted: Mapping[str, int]) -> Amounts:
    """Sorted, without what is 0."""
    return tuple(sorted((name, count) for name, count in counted.items() if count))


# What a container or a pod asks for, and at most may use. A limit without a request is the request: the API server
# fills that in for pods, not for the templates of Jobs.
Asked = tuple[Mapping[str, str] | None, Mapping[str, str] | None]


def requests_of(asked: Asked) -> dict[str, int]:
    requests, limits = asked
    return amounts({**(limits or {}), **(requests or {})})


def pod_requests(
    containers: Iterable[Asked],
    init_containers: Iterable[tuple[Asked, bool]] = (),
    pod_level: Asked = (None, None),
    overhead: Mapping[str, str] | None = None,
) -> Amounts:
    """`init_containers`: each with whether it is a sidecar, which runs on beside the containers."""
    total: dict[str, int] = {}
    for container in containers:
        _add(total, requests_of(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for init_container, sidecar in init_containers:
        wanted = requests_of(init_container)
        if sidecar:
            _add(total, wanted)
            _add(sidecars, wanted)
            _raise_to(peak, sidecars)
        else:
            _add(wanted, sidecars)
            _raise_to(peak, wanted)
    _raise_to(total, peak)
    own = requests_of(pod_level)
    total |= {name: own[name] for name in own if name in (CPU, MEMORY) or name.startswith("hugepages-")}
    _add(total, amounts(overhead))
    return as_amounts(total)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count


def _raise_to(total: dict[str, int], other: Mapping[str, int]) -> None:
    for name, count in other.items():
        if count > total.get(name, 0):
            total[name] = count
