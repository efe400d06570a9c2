"""What a verb that uses an AWS account works with: the documents, the account, the ledger, and the caller's identity.

The composition root of everything that buys. The account is a simulated one in a file (`--sim`) or the one that the
credentials reach (`--aws`). The user says which; it is never guessed. Before anything is done, stderr names the
account, the role and the region.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click

from tidemill.model.errors import Refused, Retryable, SpecError

if TYPE_CHECKING:
    from tidemill.aws.session import Aws
    from tidemill.cli.simulated_clock import SimulatedClock
    from tidemill.engine.buyer import Buyer
    from tidemill.engine.clock import MappedClock
    from tidemill.model.offers import Offer, OfferQuery
    from tidemill.model.purchases import PurchaseIntent
    from tidemill.offer_search.search import SellsOffers
    from tidemill.ports import Clock, Cloud, Ledger
    from tidemill.provision import ProvisionedCloud
    from tidemill.sim.cloud.account import SimAccount
    from tidemill.spec import Spec
    from tidemill.spec.compute_pool import ComputePool
    from tidemill.store.ledger_owner import LedgerOwner
    from tidemill.store.sql import SqlLedger

DEFAULT_LEDGER = "sqlite:///tidemill-ledger.db"
SIM_AS = "TIDEMILL_SIM_AS"
ROLE = "TIDEMILL_AWS_ROLE"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
NO_AWS = (
    "no AWS account; add --aws for the account your credentials reach, or --sim FILE for a simulated one (or set "
    "TIDEMILL_AWS or TIDEMILL_SIM)"
)

FILES = click.option(
    "-f", "--file", "files", multiple=True, required=True, envvar="TIDEMILL_FILES", metavar="FILE|DIR",
    type=click.Path(),
    help="Documents: the Platform, pools, plans. A folder stands for its YAML files. Repeatable.",
)  # fmt: skip
SIM = click.option(
    "--sim", envvar="TIDEMILL_SIM", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="Use the simulated AWS account in this file. Verbs that buy create it if needed.",
)  # fmt: skip
AWS = click.option(
    "--aws", is_flag=True, envvar="TIDEMILL_AWS",
    help="Use the AWS account that your credentials reach, in the Platform's region.",
)  # fmt: skip
LEDGER = click.option(
    "--ledger", "ledger_url", envvar="TIDEMILL_LEDGER", default=DEFAULT_LEDGER, show_default=True,
    metavar="URL", help="The database of intents, approvals and money.",
)  # fmt: skip
YES = click.option("--yes", is_flag=True, help="Do not ask. A required approval stays required.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class OpenedAccount(NamedTuple):
    cloud: Cloud
    clock: Clock
    name: str
    offers_of: Callable[
        [str], SellsOffers
    ]  # the same account in another region, to look at what is sold there


@dataclass(slots=True)
class Session:
    spec: Spec
    cloud: Cloud
    clock: Clock
    who: str  # the ARN that AWS gives for the credentials
    ledger_url: str
    offers_of: Callable[[str], SellsOffers]
    _opened: list[SqlLedger] = field(default_factory=list)
    _looked: list[SqlLedger | None] = field(default_factory=list)

    @property
    def deployment(self) -> str:
        return self.spec.platform.spec.deployment

    @property
    def ledger(self) -> SqlLedger:
        """For what is written: made and bound to this platform on first use. stderr says where it is."""
        from tidemill.store.open_ledger import open_durable

        if not self._opened:
            self._check_durable()
            whose = ledger_owner(self.spec, self.who)
            ledger = open_durable(self.ledger_url, whose, clock=self.clock, writer=self.who)
            self._opened.append(ledger)
            if not any(self._looked):
                self._say_where()
        return self._opened[0]

    @property
    def books(self) -> Ledger:
        """For what is only read: looking neither makes a ledger nor binds one. An empty one where there is none."""
        from tidemill.store.memory import MemoryLedger
        from tidemill.store.open_ledger import existing_ledger, redacted

        if self._opened:
            return self._opened[0]
        if not self._looked:
            self._check_durable()
            whose = ledger_owner(self.spec, self.who)
            found = existing_ledger(self.ledger_url, whose, clock=self.clock, writer=self.who)
            self._looked.append(found)
            if found is not None:
                self._say_where()
            else:
                click.echo(f"no ledger at {redacted(self.ledger_url)} yet", err=True)
        return self._looked[0] or MemoryLedger(self.clock, self.deployment)

    @property
    def has_ledger(self) -> bool:
        """Whether there is one at the address."""
        return bool(self.books.durable)

    def _check_durable(self) -> None:
        from tidemill.store.open_ledger import MEMORY

        if self.ledger_url == MEMORY:
            raise Refused(
                "a ledger in memory keeps nothing; name a database: --ledger sqlite:///FILE or postgresql://…"
            )

    def _say_where(self) -> None:
        from tidemill.store.open_ledger import redacted

        click.echo(f"ledger {redacted(self.ledger_url)}", err=True)

    def buyer(self) -> Buyer:
        from tidemill.engine.buyer import Buyer

        return Buyer(self.spec, self.clock, self.cloud, self.ledger)

    def purchase(self, intent_id: str) -> PurchaseIntent:
        purchases = self.books.purchases()
        intent = next((purchase for purchase in purchases if purchase.id == intent_id), None)
        if intent is None:
            from tidemill.spec.problem import suggestion

            ids = [purchase.id for purchase in purchases]
            hint = (
                suggestion(intent_id, ids, what="it has")
                if ids
                else "it is empty; name another with --ledger"
            )
            if not self.has_ledger:
                raise SpecError(f"there is no ledger at {self.ledger_url}, and so no purchase '{intent_id}'")
            raise SpecError(f"this ledger has no purchase '{intent_id}'; {hint}")
        return intent

    def pool(self, name: str) -> ComputePool:
        if name not in self.spec.pools:
            from tidemill.spec.problem import suggestion

            raise SpecError(f"there is no pool '{name}'; {suggestion(name, self.spec.pools)}")
        return self.spec.pools[name]

    def now(self) -> datetime:
        return self.clock.now()

    def close(self) -> None:
        for ledger in (*self._opened, *filter(None, self._looked)):
            ledger.close()


def with_session(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: add the options --file, --sim, --aws and --ledger, and pass the verb a `session`."""

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
    line = account_line(opened.name, who, platform.region, opened.clock.now())
    click.echo(f"{line}; deployment {platform.deployment}", err=True)
    return Session(spec, opened.cloud, opened.clock, who, ledger_url, opened.offers_of)


def account_line(name: str, who: str, region: str, at: datetime) -> str:
    """Account, role, region and time, for stderr."""
    _, account, role = _arn_parts(who)
    return f"{name}: account {account}, {role}, {region}, {at:%Y-%m-%d %H:%M:%S} UTC"


def open_cloud(spec: Spec, sim: Path | None, *, aws: bool = False) -> OpenedAccount:
    """The one place that chooses between AWS and a simulated account."""
    if aws and sim is not None and sim.name:
        raise SpecError(f"--aws and --sim {sim} name two accounts; leave one out (TIDEMILL_SIM may be set)")
    if aws:
        cloud, clock, name = open_aws(spec)
        return OpenedAccount(cloud, clock, name, functools.partial(_aws_offers_of, spec, clock))
    if sim is None or not sim.name:
        raise SpecError(NO_AWS)
    account = open_account(sim, spec)
    return OpenedAccount(
        account, account, f"SIMULATED AWS in {sim}", functools.partial(_SimulatedRegion, account)
    )


@dataclass(frozen=True, slots=True)
class _SimulatedRegion:
    account: SimAccount
    region: str

    def search_offers(self, query: OfferQuery) -> Sequence[Offer]:
        return self.account.search_offers_in(self.region, query)


def _aws_offers_of(spec: Spec, clock: Clock, region: str) -> SellsOffers:
    from tidemill.aws.account import AwsAccount
    from tidemill.aws.session import Aws
    from tidemill.cli.region_catalog import catalog_of

    aws = Aws(region, role_arn=os.environ.get(ROLE, ""))
    return AwsAccount(aws, clock, catalog_of(region), owner=spec.platform.spec.deployment)


def open_account(sim: Path, spec: Spec | None = None) -> SimAccount:
    """The simulated account in a file. With documents it is created if needed, in their region and zones."""
    from tidemill.catalog import load
    from tidemill.engine.clock import WallClock
    from tidemill.sim.cloud.account import SimAccount
    from tidemill.sim.cloud.account_file import AccountFile

    wall = WallClock().now
    if spec is not None and AccountFile(sim).make(new_account_story(spec, wall())):
        click.echo(f"created a simulated account in {sim}", err=True)
    elif spec is None and not sim.exists():
        raise SpecError(f"there is no simulated account in {sim}; create one: tidemill sim new {sim} -f FILE")
    account = SimAccount(sim, load(), wall, caller=os.environ.get(SIM_AS, ""))
    if spec is not None and account.history().region != spec.platform.spec.region:
        there, here = account.history().region, spec.platform.spec.region
        raise SpecError(f"{sim} is an account in {there}, but the Platform is in {here}; name another file")
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
        raise Refused(
            f"the Platform is in account {wanted}, but {who} is in {account}; use credentials of {wanted}"
        )


def ledger_owner(spec: Spec, who: str) -> LedgerOwner:
    """AWS says which account this is, not the documents: one ledger never serves two accounts."""
    from tidemill.store.ledger_owner import LedgerOwner

    return replace(LedgerOwner.of(spec.platform), account=_arn_parts(who)[1])


def _arn_parts(arn: str) -> tuple[str, str, str]:
    """Service, account and principal of `arn:aws:sts::123456789012:assumed-role/ROLE/NAME`."""
    parts = arn.split(":", 5)
    if len(parts) != 6:
        raise SpecError(f"{SIM_AS}: '{arn}' is not an ARN; write a name, or a whole ARN: arn:aws:sts::…")
    return parts[2], parts[4], parts[5]


# --- the account that the credentials reach -----------------------------------------------------------
#
# AWS_ENDPOINT_URL may name the simulated AWS on this machine (`tidemill sim aws`). Then the clock is the simulator's,
# and the account is called simulated. Only a loopback address is asked whether it is one.


def open_aws(spec: Spec) -> tuple[Cloud, MappedClock, str]:
    """The account through boto3, its clock, and the name to show for it."""
    from tidemill.aws.session import Aws

    clock, name = clock_and_name()
    aws = Aws(spec.platform.spec.region, role_arn=os.environ.get(ROLE, ""))
    return cloud_of(aws, spec, clock), clock, name


def cloud_of(
    aws: Aws, spec: Spec, clock: Clock, ledger: Ledger | None = None, instances_kept: timedelta = timedelta(0)
) -> ProvisionedCloud:
    """The account and how launches become instances in it. `ledger`: the open intents decide the sizes of groups;
    `instances_kept`: how long a list of instances serves."""
    from tidemill.aws.account import AwsAccount
    from tidemill.aws.compute import AwsCompute
    from tidemill.aws.images import AwsImages
    from tidemill.provision import ProvisionedCloud

    platform = spec.platform.spec
    account = AwsAccount(aws, clock, spec.catalog, owner=platform.deployment, instances_kept=instances_kept)
    compute = AwsCompute(aws, platform.deployment, platform.cluster.name)
    return ProvisionedCloud(account, compute, spec, ledger, clock, images=AwsImages(aws, clock, spec))


def clock_and_name() -> tuple[MappedClock, str]:
    """The clock of the account, and the name to show for it."""
    from tidemill.engine.clock import WallClock

    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if simulated := _simulated(endpoint):
        return simulated, f"SIMULATED AWS at {endpoint}"
    return WallClock(), f"AWS at {endpoint}" if endpoint else "AWS"


def _simulated(endpoint: str) -> SimulatedClock | None:
    if urlsplit(endpoint).hostname not in _LOOPBACK:
        return None
    from tidemill.cli.simulated_clock import SimulatedClock

    clock = SimulatedClock(endpoint)
    try:
        clock.now()
    except Retryable:  # something else listens there, such as another AWS emulator
        return None
    return clock
