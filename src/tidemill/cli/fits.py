"""`tidemill catalog --fits`: a pod's requests as people write them, and the types that hold such a pod.

The arithmetic is the catalog's; reading the words and laying out the answer are done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from tidemill.catalog import InstanceType
from tidemill.catalog.fitting import Fit, cheapest, cheapest_when_full, fitting
from tidemill.catalog.sizing import GIB, USUAL_DAEMONS
from tidemill.model.errors import SpecError
from tidemill.model.resources import Amounts, amount
from tidemill.spec import names
from tidemill.spec.units import format_cpu, format_memory, parse_cpu, parse_memory

if TYPE_CHECKING:
    from rich.table import Table

_EXAMPLE = 'write it like "gpu=1,cpu=4,memory=24Gi", with efa= or neuron= where they are needed'
_RESOURCES = {
    "gpu": names.NVIDIA_GPU,
    "cpu": names.CPU,
    "memory": names.MEMORY,
    "efa": names.EFA,
    "neuron": names.NEURON,
}
_WORDS = {resource: word for word, resource in _RESOURCES.items()}
_SPOKEN = {"gpu": "GPU", "cpu": "CPU", "memory": "memory", "efa": "EFA", "neuron": "Neuron"}
_WIDE = 96  # columns from which the table has room for what is left


def parse_requests(written: str) -> Amounts:
    """`gpu=1,cpu=4,memory=24Gi`; Kubernetes' own resource names are understood too."""
    wanted: dict[str, int] = {}
    for part in written.split(","):
        word, sign, value = (piece.strip() for piece in part.partition("="))
        if not (word and sign and value):
            raise SpecError(f"--fits: '{part.strip()}' is not a resource and an amount; {_EXAMPLE}")
        resource = word if word in _WORDS else _RESOURCES.get(word)
        if resource is None:
            near = get_close_matches(word, _RESOURCES, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise SpecError(f"--fits: unknown resource '{word}'; {hint}{_EXAMPLE}")
        if resource in wanted:
            raise SpecError(f"--fits: '{word}' is there twice")
        wanted[resource] = _amount(word, resource, value)
    if not any(wanted.values()):
        raise SpecError(f"--fits: a pod that asks for nothing fits everywhere; {_EXAMPLE}")
    return tuple(sorted(wanted.items()))


def _amount(word: str, resource: str, value: str) -> int:
    try:
        if resource == names.CPU:
            return parse_cpu(value)
        if resource == names.MEMORY:
            return parse_memory(value)
    except ValueError as error:
        raise SpecError(f"--fits: {word}: {error}") from None
    if not (value.isascii() and value.isdigit()):
        raise SpecError(f"--fits: {word}: '{value}' is not a whole number of devices; write '{word}=1'")
    return int(value)


def in_words(requests: Amounts) -> str:
    """`1 GPU, 4 CPU, 24Gi memory`: accelerators first, as people say it."""
    wanted = dict(requests)
    return ", ".join(
        f"{_spoken(resource, wanted[resource])} {_SPOKEN[word]}"
        for word, resource in _RESOURCES.items()
        if wanted.get(resource)
    )


def _spoken(resource: str, value: int) -> str:
    if resource == names.CPU:
        return format_cpu(value)
    return format_memory(value) if resource == names.MEMORY else str(value)


def why_none(types: Sequence[InstanceType], requests: Amounts) -> str:
    """One sentence: which request is larger than any of these types can meet, or that it is their sum."""
    rooms = [one.free_beside(dict(USUAL_DAEMONS)) for one in types]
    for resource, wanted in sorted(requests, key=lambda one: list(_WORDS).index(one[0])):
        most = max(has.get(resource, 0) for has in rooms)
        if wanted > most:
            largest = format_memory(most // GIB * GIB) if resource == names.MEMORY else most
            told = format_cpu(most) if resource == names.CPU else str(largest)
            asked, word = _spoken(resource, wanted), _SPOKEN[_WORDS[resource]]
            return f"no type holds it: it asks for {asked} {word} and the most any has for pods is {told}"
    return "no type holds it: some have enough of each resource, none of all of them at once"


def fits_document(types: Sequence[InstanceType], requests: Amounts) -> dict[str, Any]:
    fits = fitting(types, requests)
    alone, full = cheapest(fits), cheapest_when_full(fits)
    return {
        "request": dict(requests),
        "daemons": dict(USUAL_DAEMONS),
        "suggestion": alone.type.name if alone else None,
        "cheapest_when_full": full.type.name if full else None,
        "reason": "" if fits else why_none(types, requests),
        "fits": [
            {
                "type": fit.type.name,
                "suggested": fit is alone,
                "on_demand_usd_h": fit.usd_h,
                "pods": fit.pods,
                "usd_h_per_pod": None if fit.usd_h_per_pod is None else round(fit.usd_h_per_pod, 6),
                "gpus_stranded": fit.stranded,
                "left": dict(fit.left),
            }
            for fit in fits
        ],
    }


def fits_table(fits: Sequence[Fit], width: int) -> Table:
    from tidemill.render.fitting_table import ruled

    table = ruled()
    table.add_column("", no_wrap=True)
    table.add_column("type", no_wrap=True)
    table.add_column("accelerators", no_wrap=True)
    for heading in ("$/h", "pods", "$/h a pod", "stranded"):
        table.add_column(heading, justify="right", no_wrap=True)
    if width >= _WIDE:
        table.add_column("left when full", no_wrap=True)
    alone = cheapest(fits)
    for fit in fits:
        cells = _cells(fit, fit is alone)[: len(table.columns)]
        table.add_row(*cells, style="bold" if fit is alone else "")
    return table


def _cells(fit: Fit, suggested: bool) -> tuple[str, ...]:
    accelerator = fit.type.accelerator
    return (
        "→" if suggested else "",
        fit.type.name,
        f"{accelerator.count} x {accelerator.model}" if accelerator else "-",
        usd_h(fit.usd_h),
        str(fit.pods),
        usd_h(fit.usd_h_per_pod),
        str(fit.stranded or "-"),
        f"{amount(fit.left, 'cpu') // 100 / 10:g} CPU / {amount(fit.left, 'memory') // GIB} GiB",
    )


def usd_h(price: float | None) -> str:
    """Tenths of a cent: list prices have them, and small types differ by little more."""
    return "-" if price is None else f"{price:.3f}"


def suggestion(fits: Sequence[Fit]) -> str:
    """What to take, and where another is the better choice for many such pods."""
    alone, full = cheapest(fits), cheapest_when_full(fits)
    if alone is None or full is None:
        return "No on-demand price is known for any of them, so none is suggested."
    said = f"→ {alone.type.name}: the cheapest on demand that holds one, ${usd_h(alone.usd_h)} an hour."
    if full.usd_h_per_pod is not None and full.usd_h_per_pod < (alone.usd_h_per_pod or 0.0):
        each = usd_h(full.usd_h_per_pod)
        said += f"\n  For {full.pods} at once {full.type.name} is cheaper: ${each} a pod when full."
    return said
