"""The ledger in a database: durable before a method returns, and one writer at a time.

Each method is one transaction. A write locks the row of the ledger first, so what it reads then cannot change, and it
adds a line to the audit trail for every change. When two engines decided on the same state, the second write finds
that the state has changed and is Refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, and_, func, insert, not_, or_, select, update

from tidemill.model.capacity import SourceKind
from tidemill.model.errors import NotYet, Refused
from tidemill.model.purchases import (
    MAY_COST,
    Adoption,
    BlockHours,
    Caps,
    CostLine,
    LaunchIntent,
    LaunchState,
    Pause,
    PurchaseIntent,
    ShownReservation,
    Spending,
    Verdict,
)
from tidemill.ports import Clock
from tidemill.store import schema
from tidemill.store.database import Database
from tidemill.store.ledger_owner import LedgerOwner
from tidemill.store.memory import (
    FAILED_STARTS_KEPT,
    FAILURES_KEPT,
    SHORT_KEPT,
    check_clock,
    check_month_caps,
    check_transition,
)
from tidemill.store.months import bounds, by_month, month_of
from tidemill.store.rows import (
    adoption_of,
    adoption_row,
    block_hours_of,
    cost_of,
    cost_row,
    document,
    launch_of,
    launch_row,
    pause_of,
    pause_row,
    purchase_of,
    purchase_row,
    verdict_of,
)
from tidemill.store.sql_alerts import SqlAlerts

OVERTAKEN = "overtaken"  # the code of a write that was refused because another engine leads
# Each kind of process has a leader and an epoch of its own.
_EPOCHS = {"engine": schema.ledger.c.epoch, "purchaser": schema.ledger.c.purchaser_epoch}
_OPEN = (LaunchState.WRITTEN, LaunchState.ASKED, LaunchState.LAUNCHED)


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One change: `before` is None for what is new."""

    seq: int
    at: datetime
    who: str
    what: str  # purchase, launch, cost or ledger
    subject: str
    before: dict[str, Any] | None
    after: dict[str, Any]


class SqlLedger:
    durable = True

    def __init__(self, database: Database, clock: Clock, *, writer: str, process: str = "engine") -> None:
        """`process`: engine or purchaser; a leader of one kind does not end a leader of the other."""
        self._database, self._clock, self._writer = database, clock, writer
        self._process, self._epoch_column = process, _EPOCHS[process]
        self._epoch: int | None = None
        self._deployment = ""
        self.overtaken = False  # a write was refused because another engine leads

    # --- whose it is, and who leads ---

    def claim(self, owner: LedgerOwner) -> None:
        """Make it the ledger of this deployment. Refused: it belongs to another one."""
        with self._database.exclusive() as connection:
            row = connection.execute(select(schema.ledger).with_for_update()).mappings().one_or_none()
            if row is None:
                first = {"id": 1, "created_at": self._clock.now(), "epoch": 0}
                connection.execute(insert(schema.ledger).values(**first, **document(owner)))
                self._audit(connection, "ledger", owner.deployment, None, owner)
                return
            held = _owner_of(row)
            agreed = held.agreed_with(owner)
            if agreed != held:
                connection.execute(update(schema.ledger).values(**document(agreed)))
                self._audit(connection, "ledger", owner.deployment, held, agreed)

    @property
    def deployment(self) -> str:
        """It never changes once the ledger is claimed, so it is read once."""
        if not self._deployment:
            self._deployment = self.owner().deployment
        return self._deployment

    def owner(self) -> LedgerOwner:
        """NotYet: another process makes the ledger just now: its tables are there, and nobody owns them yet."""
        with self._database.read() as connection:
            row = connection.execute(select(schema.ledger)).mappings().first()
        if row is None:
            raise NotYet("the ledger belongs to no platform yet: another process is making it; try again")
        return _owner_of(row)

    def lead(self, may_lead: Callable[[], None] = lambda: None) -> int:
        """Become the leader: from now on writes of the leader before are Refused. Returns the new epoch.

        `may_lead` is asked once every other writer waits: what it raises leaves the leader as it is. Whoever waited for
        the ledger, or was frozen, may have lost its turn meanwhile.
        """
        with self._writing(fenced=False) as connection:
            may_lead()
            column = self._epoch_column
            held = connection.execute(select(column)).scalar_one()
            connection.execute(update(schema.ledger).values({column: held + 1}))
            values = {"before": {column.name: held}, "after": {column.name: held + 1}}
            self._append(connection, self._writer, "ledger", "leader", values)
        self._epoch, self.overtaken = held + 1, False
        return self._epoch

    @property
    def alerts(self) -> SqlAlerts:
        """The alerts, kept in the same database."""
        return SqlAlerts(self._database, self._writing)

    def close(self) -> None:
        self._database.close()

    # --- launches ---

    def launches(self) -> tuple[LaunchIntent, ...]:
        table = schema.launches
        at, now = func.coalesce(table.c.state_at, table.c.written_at), self._clock.now()
        wanted = or_(
            table.c.state.in_(_OPEN),
            and_(table.c.state == LaunchState.FAILED, at >= now - FAILURES_KEPT),
            and_(table.c.state == LaunchState.SHORT, at >= now - SHORT_KEPT),
            and_(table.c.state == LaunchState.NEVER_READY, at >= now - FAILED_STARTS_KEPT),
        )
        with self._database.read() as connection:
            rows = connection.execute(select(table).where(wanted).order_by(table.c.seq)).mappings()
            return tuple(launch_of(row) for row in rows)

    def write_launch(self, intent: LaunchIntent) -> None:
        table = schema.launches
        with self._writing() as connection:
            row = connection.execute(select(table).where(table.c.id == intent.id)).mappings().one_or_none()
            held = None if row is None else launch_of(row)
            if held == intent:
                return
            _put(connection, table, None if row is None else row["seq"], launch_row(intent))
            self._audit(connection, "launch", intent.id, held, intent)

    # --- purchases ---

    def purchases(self) -> tuple[PurchaseIntent, ...]:
        with self._database.read() as connection:
            rows = connection.execute(select(schema.purchases).order_by(schema.purchases.c.seq)).mappings()
            verdicts = _verdicts(connection)
            return tuple(
                purchase_of(row, verdicts.get((row["id"], row["approval_round"]), ())) for row in rows.all()
            )

    def propose(self, intent: PurchaseIntent) -> None:
        table = schema.purchases
        with self._writing() as connection:
            if connection.execute(select(table.c.seq).where(table.c.id == intent.id)).first() is not None:
                return
            connection.execute(insert(table).values(**purchase_row(intent), approval_round=0))
            self._write_verdicts(connection, intent, intent.verdicts, 0)
            self._audit(connection, "purchase", intent.id, None, intent, who=intent.proposer)

    def advance(self, before: PurchaseIntent, after: PurchaseIntent, *, caps: Caps | None = None) -> None:
        with self._writing() as connection:
            row, held = self._held(connection, before.id)
            check_transition(held, before, after)
            if caps is not None:
                check_clock(_last_bought_at(connection), self._clock.now())
                check_month_caps(_spending(connection, self._clock.now()), after, caps)
            assert row is not None and held is not None
            kept = len(held.verdicts)
            goes_on = after.verdicts[:kept] == held.verdicts
            # Verdicts are never deleted. When it is put to approval again, earlier ones belong to the round before.
            turn = row["approval_round"] + (0 if goes_on else 1)
            new = after.verdicts[kept:] if goes_on else after.verdicts
            _put(connection, schema.purchases, row["seq"], {**purchase_row(after), "approval_round": turn})
            self._write_verdicts(connection, after, new, turn)
            if held != after:
                who = new[-1].who if new else self._writer
                self._audit(connection, "purchase", after.id, held, after, who=who)

    def _held(self, connection: Connection, id: str) -> tuple[Any, PurchaseIntent | None]:
        table = schema.purchases
        row = connection.execute(select(table).where(table.c.id == id)).mappings().one_or_none()
        if row is None:
            return None, None
        return row, purchase_of(row, _verdicts(connection, id).get((id, row["approval_round"]), ()))

    def _write_verdicts(
        self, connection: Connection, intent: PurchaseIntent, new: tuple[Verdict, ...], turn: int
    ) -> None:
        bound = {"purchase_id": intent.id, "approval_round": turn, "envelope": document(intent.envelope)}
        for verdict in new:
            values = {
                "who": verdict.who,
                "at": verdict.at,
                "approved": verdict.approved,
                "note": verdict.note,
            }
            connection.execute(insert(schema.verdicts).values(**bound, **values))

    # --- adoptions ---

    def adopt(self, adoption: Adoption) -> None:
        with self._writing() as connection:
            self._adopt(connection, *_adopted(connection, adoption.reservation_id), adoption, adoption.who)

    def remember(self, reservation_id: str, shown: ShownReservation) -> None:
        with self._writing() as connection:
            seq, held = _adopted(connection, reservation_id)
            if held is not None:
                self._adopt(connection, seq, held, replace(held, shown=shown), self._writer)

    def _adopt(
        self, connection: Connection, seq: int | None, held: Adoption | None, adoption: Adoption, who: str
    ) -> None:
        if held != adoption:
            _put(connection, schema.adoptions, seq, adoption_row(adoption))
            self._audit(connection, "adoption", adoption.reservation_id, held, adoption, who=who)

    def adoptions(self) -> tuple[Adoption, ...]:
        with self._database.read() as connection:
            rows = connection.execute(select(schema.adoptions).order_by(schema.adoptions.c.seq)).mappings()
            return tuple(adoption_of(row) for row in rows)

    # --- pauses ---

    def pause(self) -> Pause | None:
        table = schema.pauses
        with self._database.read() as connection:
            row = connection.execute(select(table).order_by(table.c.seq.desc()).limit(1)).mappings().first()
        held = None if row is None else pause_of(row)
        return held if held is not None and held.paused else None

    def write_pause(self, pause: Pause) -> None:
        with self._writing() as connection:
            connection.execute(insert(schema.pauses).values(**pause_row(pause)))
            self._audit(connection, "pause", "engine", None, pause, who=pause.who)

    # --- money ---

    def meter(self, line: CostLine) -> None:
        table = schema.cost_lines
        with self._writing() as connection:
            query = select(table).where(table.c.instance_id == line.instance_id)
            row = connection.execute(query).mappings().one_or_none()
            held = None if row is None else cost_of(row)
            # The first end that was reported is the nearest to the truth. An instance that runs after all has no end.
            if held == line or (held is not None and held.until is not None and line.until is not None):
                return
            values = {**cost_row(line), **self._place(connection)}
            _put(connection, table, None if row is None else row["seq"], values)
            self._audit(connection, "cost", line.instance_id, held, line)

    def write_block_hours(self, lines: tuple[BlockHours, ...]) -> None:
        table = schema.block_hours
        with self._writing() as connection:
            place = self._place(connection)
            for line in lines:
                key = and_(
                    table.c.reservation_id == line.reservation_id,
                    table.c.pool == line.pool,
                    table.c.team == line.team,
                )
                seq = connection.execute(select(table.c.seq).where(key)).scalar()
                values = {named.name: getattr(line, named.name) for named in fields(line)}
                _put(connection, table, seq, {**values, **place})

    def block_hours(self) -> tuple[BlockHours, ...]:
        with self._database.read() as connection:
            rows = connection.execute(
                select(schema.block_hours).order_by(schema.block_hours.c.seq)
            ).mappings()
            return tuple(block_hours_of(row) for row in rows)

    def _place(self, connection: Connection) -> dict[str, Any]:
        owner = schema.ledger.c
        return dict(connection.execute(select(owner.account, owner.region, owner.cluster)).mappings().one())

    def metered(self) -> tuple[CostLine, ...]:
        table = schema.cost_lines
        with self._database.read() as connection:
            rows = connection.execute(select(table).where(table.c.until.is_(None)).order_by(table.c.seq))
            return tuple(cost_of(row) for row in rows.mappings())

    def cost_lines(self) -> tuple[CostLine, ...]:
        """Of every instance, ended or not."""
        table = schema.cost_lines
        with self._database.read() as connection:
            rows = connection.execute(select(table).order_by(table.c.seq)).mappings()
            return tuple(cost_of(row) for row in rows)

    def spending(self, now: datetime) -> Spending:
        with self._database.read() as connection:
            return _spending(connection, now)

    # --- the audit trail ---

    def audit(self, subject: str | None = None) -> tuple[AuditLine, ...]:
        """Every change, oldest first; `subject` limits it to one purchase, launch or instance."""
        table = schema.audit
        query = select(table).order_by(table.c.seq)
        if subject is not None:
            query = query.where(table.c.subject == subject)
        with self._database.read() as connection:
            return tuple(AuditLine(**row) for row in connection.execute(query).mappings())

    def _audit(
        self, connection: Connection, what: str, subject: str, before: Any, after: Any, *, who: str = ""
    ) -> None:
        values = {"before": None if before is None else document(before), "after": document(after)}
        self._append(connection, who or self._writer, what, subject, values)

    def _append(
        self, connection: Connection, who: str, what: str, subject: str, values: dict[str, Any]
    ) -> None:
        line = {"at": self._clock.now(), "who": who, "what": what, "subject": subject, **values}
        connection.execute(insert(schema.audit).values(**line))

    @contextmanager
    def _writing(self, *, fenced: bool = True) -> Iterator[Connection]:
        with self._database.write() as connection:
            epoch = connection.execute(select(self._epoch_column).with_for_update()).scalar_one()
            if fenced and self._epoch is not None and epoch != self._epoch:
                self.overtaken = True
                raise Refused(
                    f"another {self._process} has become the leader (epoch {epoch}, this one has {self._epoch})",
                    code=OVERTAKEN,
                )
            yield connection


def _adopted(connection: Connection, reservation_id: str) -> tuple[int | None, Adoption | None]:
    table = schema.adoptions
    query = select(table).where(table.c.reservation_id == reservation_id)
    row = connection.execute(query).mappings().one_or_none()
    return (None, None) if row is None else (row["seq"], adoption_of(row))


def _put(connection: Connection, table: Table, seq: int | None, values: dict[str, Any]) -> None:
    if seq is None:
        connection.execute(insert(table).values(**values))
    else:
        connection.execute(update(table).where(table.c.seq == seq).values(**values))


def _verdicts(connection: Connection, purchase: str | None = None) -> dict[tuple[str, int], list[Verdict]]:
    """By purchase and round, in the order in which they were given."""
    table = schema.verdicts
    query = select(table).order_by(table.c.seq)
    if purchase is not None:
        query = query.where(table.c.purchase_id == purchase)
    verdicts: dict[tuple[str, int], list[Verdict]] = {}
    for row in connection.execute(query).mappings():
        verdicts.setdefault((row["purchase_id"], row["approval_round"]), []).append(verdict_of(row))
    return verdicts


def _last_bought_at(connection: Connection) -> datetime | None:
    table = schema.purchases
    newest = select(func.max(table.c.state_at)).where(table.c.state.in_(MAY_COST))
    return connection.execute(newest).scalar()


def _spending(connection: Connection, now: datetime) -> Spending:
    first, following = bounds(now)
    bought = schema.purchases.c
    in_month = and_(bought.state_at >= first, bought.state_at < following)
    paid = select(bought.plan, func.sum(bought.fee_usd)).where(bought.state.in_(MAY_COST), in_month)
    fees = sorted((plan, int(usd)) for plan, usd in connection.execute(paid.group_by(bought.plan)))
    hourly = tuple(sorted(_hourly(connection, now).items()))
    return Spending(sum(usd for _, usd in fees), hourly, tuple(fees))


def _hourly(connection: Connection, now: datetime) -> dict[tuple[str, SourceKind], float]:
    """Dollars of this month by pool and kind. Most lines began and ended in it: those the database adds up."""
    first, following = bounds(now)
    table, line = schema.cost_lines, schema.cost_lines.c
    within = and_(line.since >= first, line.until.is_not(None), line.until <= following)
    touches = and_(line.since < following, or_(line.until.is_(None), line.until > first))
    added = select(line.pool, line.kind, func.sum(line.usd_millionths)).where(within)
    sums = {
        (pool, kind): float(millionths) / 1_000_000
        for pool, kind, millionths in connection.execute(added.group_by(line.pool, line.kind))
    }
    for row in connection.execute(select(table).where(touches, not_(within))).mappings():
        one = cost_of(row)
        usd = dict(by_month(one, one.until or now)).get(month_of(now), 0.0)
        sums[(one.pool, one.kind)] = sums.get((one.pool, one.kind), 0.0) + usd
    return sums


def _owner_of(row: Any) -> LedgerOwner:
    return LedgerOwner(row["deployment"], row["account"], row["region"], row["cluster"])
