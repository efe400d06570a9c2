"""`tidemill init`: the first documents of a platform, from flags or by asking. Only the folder is touched."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tidemill.model.errors import SpecError

# By flag: what is asked for, and the answer that is offered. "{…}" is another answer.
_QUESTIONS = {
    "region": ("AWS region", "us-east-1"),
    "account": ("AWS account, 12 digits", ""),
    "deployment": ("Name of the deployment: owner tag and prefix of secrets", "prod-ml"),
    "cluster": ("EKS cluster", "{deployment}"),
    "hostname": ("Host name of the engine", ""),
    "node_role": ("IAM role of the nodes", "{deployment}-nodes"),
    "bucket": ("S3 bucket of models", "{deployment}-models"),
    "certificate_arn": ("ARN of the ACM certificate of the host name; empty: later", ""),
}
_OPTIONAL = ("certificate_arn",)


@click.command(short_help="Write the first documents of a platform.")
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option("--region", metavar="NAME", help="AWS region, such as us-east-1.")
@click.option("--account", metavar="ID", help="AWS account: 12 digits.")
@click.option(
    "--deployment", metavar="NAME", help="Owner tag of everything that is made, and prefix of its secrets."
)
@click.option("--cluster", metavar="NAME", help="EKS cluster.")
@click.option("--hostname", metavar="NAME", help="Host name of the engine, such as ml.example.com.")
@click.option("--node-role", metavar="NAME", help="IAM role of the nodes.")
@click.option("--bucket", metavar="NAME", help="S3 bucket of models and shared files.")
@click.option("--certificate-arn", metavar="ARN", help="ACM certificate of the host name.")
@click.option(
    "--type", "instance_type", default="p5.48xlarge", show_default=True, help="Instance type of the blocks."
)
@click.option("--nodes", default=2, show_default=True, type=click.IntRange(1, 64), help="Nodes of a block.")
@click.option(
    "--provisioner", default="native", show_default=True, type=click.Choice(("native", "asg", "managed", "karpenter")),
    help="What launches the nodes; `tidemill advise` says which fits.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask: take the offered answers.")
@click.option("--force", is_flag=True, help="Overwrite files of the same names.")
def init(
    folder: Path,
    yes: bool,
    force: bool,
    instance_type: str,
    nodes: int,
    provisioner: str,
    **given: str | None,
) -> None:
    """Write platform.yaml, pools.yaml and rehearsal.yaml into FOLDER, from eight answers, ready to rehearse.

    Asks for what no flag says. The files have comments for what you will want to change; `tidemill validate`
    and `rehearse` take them as they are. No account is called.
    """
    from tidemill.catalog import load
    from tidemill.engine.clock import WallClock
    from tidemill.render.starter import FILES, Answers, starter_documents

    taken = [name for name in FILES if (folder / name).exists()]
    if taken and not force:
        raise SpecError(
            f"{folder / taken[0]} is there already; name another folder, or add --force to overwrite it"
        )
    answers = _answers(given, yes=yes)
    wanted = Answers(**answers, instance_type=instance_type, nodes=nodes, provisioner=provisioner)
    documents = starter_documents(wanted, load(), WallClock().now())
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in documents.items():
        (folder / name).write_text(text, encoding="utf-8")
        click.echo(f"wrote {folder / name}")
    paths = " ".join(str(folder / name) for name in FILES)
    click.echo(f"\nNext: tidemill rehearse {paths}")


def _answers(given: dict[str, str | None], *, yes: bool) -> dict[str, str]:
    answers: dict[str, str] = {}
    missing: list[str] = []
    for name, (question, offered) in _QUESTIONS.items():
        flag, offer = given.get(name), offered.format(**answers) if "{" in offered else offered
        if flag is not None:
            answers[name] = flag
        elif yes or not sys.stdin.isatty():
            answers[name] = offer
            if not offer and name not in _OPTIONAL:
                missing.append(f"--{name.replace('_', '-')}")
        else:
            answers[name] = click.prompt(question, default=offer, show_default=bool(offer), err=True)
    if missing:
        raise SpecError(
            f"nobody answers here, and there is no usual answer for {', '.join(missing)}; add them"
        )
    return answers
