"""`tidemill advise`: which provisioner fits each pool, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tidemill.report.provisioner_advice import PoolAdvice


@click.command(short_help="Say which provisioner fits each pool, and why.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--pool", metavar="NAME", help="Only this pool.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def advise(files: tuple[str, ...], pool: str | None, as_json: bool) -> None:
    """Say which provisioner fits each pool: native, asg, managed or karpenter, and why.

    Uses the documents only: sources, types, node class, the Karpenter version of the Platform, and the jobs of a
    Scenario, if there is one. Nothing is changed. To change a pool, set its spec.provisioner.
    """
    from tidemill.cli.loading import load_spec
    from tidemill.model.errors import SpecError
    from tidemill.report.provisioner_advice import advise as advice_on
    from tidemill.spec.problem import suggestion

    spec, scenario = load_spec(files)
    if pool is not None and pool not in spec.pools:
        raise SpecError(f"there is no pool '{pool}'; {suggestion(pool, spec.pools)}")
    advices = [advice for advice in advice_on(spec, scenario) if pool in (None, advice.pool)]
    if not advices:
        raise SpecError("there is no ComputePool in the documents; add one")
    if as_json:
        click.echo(json.dumps({"pools": [advice.as_json() for advice in advices]}, indent=2))
        return
    click.echo("\n\n".join(_advice_text(advice) for advice in advices))


def _advice_text(advice: PoolAdvice) -> str:
    best = advice.best.provisioner.value
    head = f"{advice.pool}: {best}" + ("" if advice.now == best else f" (now: {advice.now.value})")
    lines = [head]
    for judged in advice.judged:
        reasons = [
            *(f"+ {reason}" for reason in (() if judged.rules_out else judged.favours)),
            *(f"- {reason}" for reason in (() if judged.rules_out else judged.costs)),
            *(f"x {reason}" for reason in judged.rules_out),
        ]
        lines.append(f"  {judged.provisioner.value:<10} {judged.fit}")
        lines += [f"    {reason}" for reason in reasons]
    return "\n".join(lines)
