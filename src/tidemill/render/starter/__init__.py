"""The first documents of a platform, from the few things that only its people know. Templates are files beside this.

What is written validates, plans and rehearses as it is; everything that a person will want to change has a comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from importlib import resources
from typing import Final

from tidemill.catalog import Catalog
from tidemill.catalog.sizing import whole_node_request
from tidemill.model.ec2_facts import grid_at_or_after
from tidemill.model.errors import SpecError
from tidemill.model.resources import amount
from tidemill.spec import names
from tidemill.spec.units import format_instant

FILES: Final = ("platform.yaml", "pools.yaml", "rehearsal.yaml")
_GIB = 2**30
# Days until the first block, how long it is, and the rehearsal after it.
_AHEAD, _LENGTH, _AFTER = timedelta(days=2), timedelta(days=3), timedelta(days=1)
_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_FORMS = {
    "region": (r"[a-z]{2}(-[a-z]+)+-\d", "us-east-1"),
    "account": (r"\d{12}", "123456789012"),
    "deployment": (_NAME, "prod-ml"),
    "cluster": (r"[0-9A-Za-z][A-Za-z0-9-_]{0,99}", "ml"),
    "hostname": (rf"{_NAME}(\.{_NAME})+", "ml.example.com"),
    "node_role": (r"[\w+=,.@-]{1,64}|arn:aws[a-z-]*:iam::\d{12}:role/\S+", "ml-nodes"),
    "bucket": (r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", "prod-ml-models"),
    "certificate_arn": (r"(arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/.+)?", "arn:aws:acm:…"),
}


@dataclass(frozen=True, slots=True)
class Answers:
    """What only the people of a platform know: the placeholders of its documents."""

    region: str
    account: str
    deployment: str
    cluster: str
    hostname: str
    node_role: str
    bucket: str
    certificate_arn: str = ""
    instance_type: str = "p5.48xlarge"
    nodes: int = 2
    provisioner: str = "native"

    def problems(self) -> list[tuple[str, str]]:
        """Field and an example, of those that are not of their form."""
        return [
            (name, example)
            for name, (form, example) in _FORMS.items()
            if not re.fullmatch(form, str(getattr(self, name)))
        ]


def starter_documents(answers: Answers, catalog: Catalog, now: datetime) -> dict[str, str]:
    """The files by name. SpecError: an answer is not of its form, or EC2 does not sell such blocks."""
    from jinja2 import Environment, StrictUndefined

    for name, example in answers.problems():
        raise SpecError(
            f"{name.replace('_', '-')}: '{getattr(answers, name)}' is not of its form, such as {example}"
        )
    kind = catalog.types.get(answers.instance_type)
    if kind is None or not kind.block:
        sold = sorted(name for name, each in catalog.types.items() if each.block)
        raise SpecError(
            f"'{answers.instance_type}' is not sold as Capacity Blocks; these are: {', '.join(sold)}"
        )
    begin = grid_at_or_after(now + _AHEAD)
    neuron = kind.category == "trn"
    whole = whole_node_request(kind)
    fee = (kind.block_usd_h or 0) * answers.nodes * _LENGTH.total_seconds() / 3600
    until_h = int((begin - now).total_seconds() // 3600)
    values = {
        **{field.name: getattr(answers, field.name) for field in fields(answers)},
        "zone": f"{answers.region}a",
        "other_zone": f"{answers.region}b",
        "ami": "al2023@v20261101",
        "taint": names.NEURON if neuron else names.NVIDIA_GPU,
        "device": "neuron" if neuron else "gpus",
        "efa": "true" if kind.efa else "false",
        "count": kind.gpus,
        "cpu": f"{amount(whole, 'cpu')}m",
        "memory": f"{amount(whole, 'memory') // _GIB}Gi",
        "demand_from": format_instant(begin),
        "demand_to": format_instant(begin + _LENGTH - timedelta(minutes=30)),
        "start": format_instant(now.replace(minute=0, second=0, microsecond=0)),
        "days": (_AHEAD + _LENGTH + _AFTER).days + 1,
        "first_job_h": until_h + 2,
        "last_job_h": until_h + 60,
        "per_purchase_usd": _rounded_up(fee * 1.5),
        "monthly_usd": _rounded_up(fee * 3),
    }
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    folder = resources.files(__name__)
    return {
        name: environment.from_string(folder.joinpath(name).read_text(encoding="utf-8")).render(values)
        for name in FILES
    }


def _rounded_up(usd: float) -> int:
    """To whole thousands: a ceiling is chosen, not computed to the cent."""
    return max(1000, -int(-usd // 1000) * 1000)
