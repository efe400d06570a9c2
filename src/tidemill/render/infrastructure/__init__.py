"""What is around the pools as CloudFormation: network, cluster, data, access, events, and a copy in another region.

Templates that are the same for everybody are files beside this module, as a person would write them; the documents
become their parameters. Only `access` is made here, since its policies are those of `tidemill iam`. Stacks hand over
what the next one needs as exports, so they are deployed in the order of `STACKS`.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from tidemill.model.errors import SpecError
from tidemill.platform.secrets import layout_of
from tidemill.render.infrastructure.access import access_template
from tidemill.render.kubernetes_yaml import yaml_text
from tidemill.spec import Spec

STACKS: Final = ("network", "cluster", "data", "access", "events")
# Deployed elsewhere, by whoever wants it.
REPLICA: Final = "replica"
_ZONES = 3


@dataclass(frozen=True, slots=True)
class Stack:
    """`missing`: parameters without a default that the documents do not say."""

    name: str  # of the stack in the account
    part: str
    template: str
    parameters: Mapping[str, str]
    missing: tuple[str, ...]


def stack_of(spec: Spec, part: str, *, issuer: str = "", given: Mapping[str, str] | None = None) -> Stack:
    """`issuer`: of the cluster's OIDC tokens; roles are then bound by IRSA instead of Pod Identity. `given`: parameters
    that win over the documents'. SpecError: one of them is none of this template's."""
    template = (
        yaml_text([access_template(spec, issuer)]) + "\n"
        if part == "access"
        else resources.files(__name__).joinpath(f"{part}.yaml").read_text(encoding="utf-8")
    )
    known = _parameters(template)
    wrong = sorted(set(given or {}) - set(known))
    if wrong:
        raise SpecError(f"the stack {part} has no parameter '{wrong[0]}'; it has {', '.join(sorted(known))}")
    values = {name: value for name, value in _said(spec).items() if name in known and value} | dict(
        given or {}
    )
    missing = tuple(name for name, has_default in known.items() if not has_default and name not in values)
    return Stack(f"{spec.platform.spec.deployment}-{part}", part, template, values, missing)


def _parameters(template: str) -> dict[str, bool]:
    """The names, and whether each has a default."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads the short forms of functions, whatever they mean."""

    Loader.add_multi_constructor("!", lambda loader, tag, node: None)
    document: dict[str, Any] = yaml.load(template, Loader=Loader)
    return {name: "Default" in one for name, one in (document.get("Parameters") or {}).items()}


def _said(spec: Spec) -> dict[str, str]:
    """What the documents say, by the parameter's name. Empty: nothing."""
    platform, layout = spec.platform.spec, layout_of(spec.platform.spec)
    role = platform.node_role
    return {
        "Deployment": platform.deployment,
        "ClusterName": platform.cluster.name,
        "KubernetesVersion": platform.cluster.version,
        "NodeRoleName": role.rpartition("/")[2],
        "Zones": ",".join(zones_of(spec)),
        "DatabaseInstance": layout.instance,
        "DatabaseName": layout.database,
        "RedisGroup": layout.replication_group,
        "BucketName": layout.bucket,
        "RepositoryName": platform.deployment,
    }


def zones_of(spec: Spec) -> tuple[str, ...]:
    """Three zones, and every zone of the documents is one of them: a block is of use only where there is a subnet."""
    platform = spec.platform.spec
    named = dict.fromkeys(platform.subnets)
    for pool in spec.pools.values():
        named |= dict.fromkeys(pool.spec.requirements.zones)
        for source in pool.spec.sources:
            named |= dict.fromkeys(source.zones)
    if len(named) > _ZONES:
        raise SpecError(
            f"the network has {_ZONES} zones, and the documents name {len(named)}: {', '.join(named)}; leave some out,"
            " or make the network yourself and write spec.subnets"
        )
    for letter in string.ascii_lowercase:
        if len(named) == _ZONES:
            break
        named[f"{platform.region}{letter}"] = None
    return tuple(sorted(named))
