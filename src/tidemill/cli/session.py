"""Where verbs that touch an account begin: the documents, the account, the ledger, and who is asking.

The composition root of everything that buys: a simulated account in a file, or the one the credentials reach. Which
one is said by the user and never guessed, and said again on stderr, with account, role and region, before anything is
done.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import click

from tidemill.model.errors import Refused, Retryable, SpecError

if TYPE_CHECKING:
    from tidemill.engine.buyer import Buyer
    from tidemill.model.purchases import PurchaseIntent
    from tidemill.ports import Clock, Cloud
    from tidemill.sim.cloud.account import SimAccount
    from tidemill.spec import Spec
    from tidemill.spec.compute_pool import ComputePool
    from tidemill.store.sql import SqlLedger

DEFAULT_LEDGER = "sqlite:///tidemill-ledger.db"
SIM_AS = "TIDEMILL_SIM_AS"
NO_AWS = (
    "say which AWS: --aws for the account your credentials reach, or --sim FILE for a simulated one (or set "
    "TIDEMILL_AWS or TIDEMILL_SIM); the file is made if it is not there"
)

FILES = click.option(
    "-f", "--file", "files", multiple=True, required=True, envvar="TIDEMILL_FILES", metavar="FILE|DIR",
    type=click.Path(),
    help="The documents: Platform and pools. Of a folder, its YAML files. More than one may be given.",
)  # fmt: skip
SIM = click.option(
    "--sim", envvar="TIDEMILL_SIM", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="The simulated AWS account in this file; made if it is not there.",
)  # fmt: skip
AWS = click.option(
    "--aws", is_flag=True, envvar="TIDEMILL_AWS",
    help="The AWS account that the usual credentials reach, in the Platform's region.",
)  # fmt: skip
LEDGER = click.option(
    "--ledger", "ledger_url", envvar="TIDEMILL_LEDGER", default=DEFAULT_LEDGER, show_default=True,
    metavar="URL", help="Where intents, approvals and money are written down.",
)  # fmt: skip
YES = click.option("--yes", is_flag=True, help="Do not ask. An approval that is required stays required.")
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


class OpenedAccount(NamedTuple):
    cloud: Cloud
    clock: Clock
    name: str


@dataclass(slots=True)
class Session:
    spec: Spec
    cloud: Cloud
    clock: Clock
    who: str  # proved: AWS itself says so
    ledger_url: str
    _opened: list[SqlLedger] = field(default_factory=list)

    @property
    def deployment(self) -> str:
        return self.spec.platform.spec.deployment

    @property
    def ledger(self) -> SqlLedger:
        """Opened when it is first needed, and said where it is."""
        if not self._opened:
            self._opened.append(self._open())
        return self._opened[0]

    def _open(self) -> SqlLedger:
        from tidemill.store.deployment_guard import LedgerOwner
        from tidemill.store.open_ledger import MEMORY, open_durable, redacted

        if self.ledger_url == MEMORY:
            raise Refused("nothing is bought or written down in a ledger in memory: name one in a database")
        # The account is AWS's word, not the documents': a ledger never serves two.
        whose = replace(LedgerOwner.of(self.spec.platform), account=_arn_parts(self.who)[1])
        ledger = open_durable(self.ledger_url, whose, clock=self.clock, writer=self.who)
        click.echo(f"ledger {redacted(self.ledger_url)}", err=True)
        return ledger

    def buyer(self) -> Buyer:
        from tidemill.engine.buyer import Buyer

        return Buyer(self.spec, self.clock, self.cloud, self.ledger)

    def purchase(self, intent_id: str) -> PurchaseIntent:
        purchases = self.ledger.purchases()
        found = next((one for one in purchases if one.id == intent_id), None)
        if found is None:
            from tidemill.spec.problem import suggestion

            known = suggestion(intent_id, [one.id for one in purchases], what="known")
            raise SpecError(f"this ledger knows no purchase '{intent_id}'; {known}")
        return found

    def pool(self, name: str) -> ComputePool:
        if name not in self.spec.pools:
            from tidemill.spec.problem import suggestion

            raise SpecError(f"there is no pool '{name}'; {suggestion(name, self.spec.pools)}")
        return self.spec.pools[name]

    def now(self) -> datetime:
        return self.clock.now()

    def close(self) -> None:
        for one in self._opened:
            one.close()


def with_session(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options every such verb has, and calls it with `session`."""

    @FILES
    @SIM
    @AWS
    @LEDGER
    @functools.wraps(verb)
    def run(*, files: tuple[str, ...], sim: Path | None, aws: bool, ledger_url: str, **given: Any) -> Any:
        session = open_session(files, sim, ledger_url, aws=aws)
        try:
            return verb(session=session, **given)
        finally:
            session.close()

    return run


def open_session(files: Sequence[str], sim: Path | None, ledger_url: str, *, aws: bool = False) -> Session:
    from tidemill.cli.loading import load_spec

    spec, _ = load_spec(files)
    opened = open_cloud(spec, sim, aws=aws)
    who = opened.cloud.identity()
    check_account(spec, who)
    platform = spec.platform.spec
    told = account_line(opened.name, who, platform.region, opened.clock.now())
    click.echo(f"{told}; deployment {platform.deployment}", err=True)
    return Session(spec, opened.cloud, opened.clock, who, ledger_url)


def account_line(name: str, who: str, region: str, at: datetime) -> str:
    """Which account it is, as whom, where and when."""
    _, account, role = _arn_parts(who)
    return f"{name}: account {account}, {role}, {region}, {at:%Y-%m-%d %H:%M:%S} UTC"


def open_cloud(spec: Spec, sim: Path | None, *, aws: bool = False) -> OpenedAccount:
    """The one place that chooses an AWS."""
    if aws and sim is not None and sim.name:
        raise SpecError(f"--aws and --sim {sim} name two accounts: leave one out (TIDEMILL_SIM may be set)")
    if aws:
        return OpenedAccount(*open_aws(spec))
    if sim is None or not sim.name:
        raise SpecError(NO_AWS)
    account = open_account(sim, spec)
    return OpenedAccount(account, account, f"SIMULATED AWS in {sim}")


def open_account(sim: Path, spec: Spec | None = None) -> SimAccount:
    """The simulated account; with documents it is made if it is not there, as they describe it."""
    from tidemill.catalog import load
    from tidemill.sim.cloud.account import SimAccount
    from tidemill.sim.cloud.account_file import AccountFile
    from tidemill.store.open_ledger import WallClock

    wall = WallClock().now
    if spec is not None and AccountFile(sim).make(new_account_story(spec, wall())):
        click.echo(f"made a simulated account in {sim}", err=True)
    elif spec is None and not sim.exists():
        raise SpecError(f"there is no simulated account in {sim}; make one: tidemill sim new {sim} -f FILE")
    account = SimAccount(sim, load(), wall, caller=os.environ.get(SIM_AS, ""))
    if spec is not None and account.history().region != spec.platform.spec.region:
        there, here = account.history().region, spec.platform.spec.region
        raise SpecError(f"{sim} is an account in {there}, and the Platform is in {here}: name another file")
    return account


def new_account_story(spec: Spec, wall: datetime, **changes: Any) -> Any:
    from tidemill.sim.cloud.account_file import NOBODYS_ACCOUNT, AccountHistory

    platform = spec.platform.spec
    zones = tuple(sorted(platform.subnets)) or (f"{platform.region}a",)
    account = platform.account_id or NOBODYS_ACCOUNT
    return AccountHistory(wall.replace(microsecond=0), platform.region, zones, account=account, **changes)


def check_account(spec: Spec, who: str) -> None:
    wanted = spec.platform.spec.account_id
    _, account, _ = _arn_parts(who)
    if wanted is not None and account != wanted:
        raise Refused(f"the Platform is in account {wanted}, and {who} is in {account}: nothing is touched")


def _arn_parts(arn: str) -> tuple[str, str, str]:
    """Service, account and who of `arn:aws:sts::123456789012:assumed-role/ROLE/NAME`."""
    parts = arn.split(":", 5)
    if len(parts) != 6:
        raise SpecError(f"{SIM_AS}: '{arn}' is not an ARN; write a name, or all of arn:aws:sts::…")
    return parts[2], parts[4], parts[5]


# --- real_aws ---


ROLE = "TIDEMILL_AWS_ROLE"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_WAIT_S = 5


def open_aws(spec: Spec) -> tuple[Cloud, Clock, str]:
    """The account through boto3, its clock, and what to call it."""
    from tidemill.aws.account import AwsAccount
    from tidemill.aws.compute import AwsCompute
    from tidemill.aws.images import AwsImages
    from tidemill.aws.session import Aws
    from tidemill.provision import ProvisionedCloud

    platform, role = spec.platform.spec, os.environ.get(ROLE, "")
    clock, name = clock_and_name()
    aws = Aws(platform.region, role_arn=role)
    account = AwsAccount(aws, clock, spec.catalog, owner=platform.deployment)
    compute = AwsCompute(aws, platform.deployment, platform.cluster.name)
    cloud = ProvisionedCloud(account, compute, spec, None, clock, images=AwsImages(aws, clock, spec))
    return cloud, clock, name


def clock_and_name() -> tuple[Clock, str]:
    """What time it is there, and what to call it."""
    from tidemill.store.open_ledger import WallClock

    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if simulated := _simulated(endpoint):
        return simulated, f"SIMULATED AWS at {endpoint}"
    return WallClock(), f"AWS at {endpoint}" if endpoint else "AWS"


class SimulatedClock:
    """What time it is in the simulated AWS: asked each time, since it may run a thousand times as fast."""

    def __init__(self, endpoint: str) -> None:
        self._url = f"{endpoint.rstrip('/')}/tidemill/clock"

    def now(self) -> datetime:
        try:
            with urlopen(self._url, timeout=_WAIT_S) as answer:
                return datetime.fromisoformat(json.load(answer)["now"])
        except (URLError, ValueError, KeyError, TypeError, OSError) as error:
            raise Retryable(f"the simulated AWS does not tell the time: {self._url}: {error}") from error


def _simulated(endpoint: str) -> SimulatedClock | None:
    if urlsplit(endpoint).hostname not in _LOOPBACK:
        return None
    clock = SimulatedClock(endpoint)
    try:
        clock.now()
    except Retryable:  # some other AWS on this machine
        return None
    return clock
