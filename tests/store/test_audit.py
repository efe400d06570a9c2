"""The audit trail: every change has its line, and nobody can change or remove one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from tests.decide.builders import NOW, launch_intent
from tests.decide.purchases import intent, yes
from tests.engine.ports import Hands
from tests.store.ledgers import Opener
from tests.store.postgres import Server
from tests.store.probes import inside
from tidemill.model.capacity import SourceKind
from tidemill.model.errors import Refused
from tidemill.model.purchases import CostLine, LaunchState
from tidemill.store import schema
from tidemill.store.rows import document
from tidemill.store.sql import SqlLedger

LINE = CostLine("i-1", "g6", SourceKind.ON_DEMAND, 2.0, NOW, team="vision", gpus=4)


@pytest.mark.requirement("CB-3")
def test_the_audit_trail_has_every_change_of_a_purchase_and_who_made_it(durable: SqlLedger, clock: Hands):
    life = [
        intent(),
        intent("approved", approved_by=("ana",)),
        intent("submitted", approved_by=("ana",), fee_usd=25_000),
    ]
    durable.propose(life[0])
    clock.pass_time(hours=1)
    durable.advance(life[0], life[1])
    clock.pass_time(hours=1)
    durable.advance(life[1], life[2])
    trail = durable.audit("tp-1")
    assert [(one.who, one.at) for one in trail] == [
        ("tidemill-engine", NOW),
        ("ana", NOW + timedelta(hours=1)),
        ("tidemill-engine", NOW + timedelta(hours=2)),
    ]
    assert [one.after for one in trail] == [document(one) for one in life]
    assert [one.before for one in trail] == [None, document(life[0]), document(life[1])]


def test_the_audit_trail_has_launches_and_costs_too(durable: SqlLedger):
    durable.write_launch(launch_intent())
    durable.write_launch(launch_intent(state=LaunchState.SETTLED))
    durable.meter(LINE)
    durable.meter(replace(LINE, until=NOW + timedelta(hours=1)))
    trail = [(one.what, one.subject) for one in durable.audit()]
    assert trail[1:] == [("launch", "ti-1"), ("launch", "ti-1"), ("cost", "i-1"), ("cost", "i-1")]


def test_a_write_that_changes_nothing_leaves_no_audit_line(durable: SqlLedger):
    for _ in range(2):
        durable.propose(intent())
        durable.write_launch(launch_intent())
        durable.meter(LINE)
    assert [one.what for one in durable.audit()] == ["ledger", "purchase", "launch", "cost"]


def test_a_refused_write_leaves_no_audit_line(durable: SqlLedger):
    durable.propose(intent())
    trail = durable.audit()
    with pytest.raises(Refused):
        durable.advance(intent("approved"), intent("submitted"))
    assert durable.audit() == trail


@pytest.mark.requirement("CB-3")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET who = 'somebody else'",
        "DELETE FROM audit",
        "UPDATE verdicts SET approved = NOT approved",
        "DELETE FROM verdicts",
        "DELETE FROM purchases",
    ],
)
def test_the_database_itself_refuses_to_rewrite_history(durable: SqlLedger, statement: str):
    durable.propose(intent(approved_by=("ana",)))
    trail = durable.audit()
    with pytest.raises(DBAPIError, match="is not allowed"), inside(durable) as connection:
        connection.execute(text(statement))
    assert durable.audit() == trail
    assert durable.purchases() == (intent(approved_by=("ana",)),)


@pytest.mark.parametrize("table", ["audit", "verdicts"])
def test_postgresql_cannot_be_emptied_at_once_either(postgres: Server, opened: Opener, table: str):
    ledger = opened(postgres.new_database())
    with pytest.raises(DBAPIError, match="is not allowed"), inside(ledger) as connection:
        connection.execute(text(f"TRUNCATE {table} CASCADE"))


@pytest.mark.requirement("CB-3")
def test_a_verdict_keeps_its_envelope_after_the_envelope_changed(durable: SqlLedger):
    approved = intent("approved", approved_by=("ana",))
    durable.propose(approved)
    again = intent(inside={"max_fee_usd": 40_000})
    durable.advance(approved, again)
    durable.advance(again, replace(again, verdicts=(yes("bo"),)))
    with inside(durable) as connection:
        rows = connection.execute(select(schema.verdicts).order_by(schema.verdicts.c.seq)).mappings().all()
    assert [(row["who"], row["at"], row["envelope"]["max_fee_usd"]) for row in rows] == [
        ("ana", yes().at, 30_000),
        ("bo", yes().at, 40_000),
    ]


def test_a_cost_line_has_its_team_account_region_and_cluster(durable: SqlLedger):
    durable.meter(LINE)
    with inside(durable) as connection:
        row = connection.execute(select(schema.cost_lines)).mappings().one()
    told = {name: row[name] for name in ("account", "region", "cluster", "pool", "team", "gpus")}
    assert told == {
        "account": "123456789012", "region": "us-west-2", "cluster": "research", "pool": "g6",
        "team": "vision", "gpus": 4,
    }  # fmt: skip
