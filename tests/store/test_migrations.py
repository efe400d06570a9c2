"""A ledger made by any earlier version becomes one of this version, with everything that was in it."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import insert, inspect, select, text

from tests.decide.builders import NOW, launch_intent
from tests.decide.purchases import intent
from tests.engine.ports import Hands
from tests.store.ledgers import OURS, Opener
from tests.store.probes import inside
from tidemill.model.capacity import SourceKind
from tidemill.model.purchases import CostLine
from tidemill.store import migrate, open_ledger, schema
from tidemill.store.rows import document, launch_row, purchase_row


def test_the_versions_named_are_those_there_are():
    config = Config()
    config.set_main_option("script_location", str(migrate.MIGRATIONS))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    assert tuple(one.revision for one in reversed(list(script.walk_revisions()))) == schema.REVISIONS


def test_the_migrations_make_the_tables_that_the_code_names(url: str, opened: Opener):
    with inside(opened(url)) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
        assert inspect(connection).get_pk_constraint("audit")["name"] == "pk_audit"


@pytest.mark.requirement("CB-4")
def test_a_ledger_of_the_first_version_is_brought_up_to_date(url: str, opened: Opener, clock: Hands):
    database = open_ledger._database(url)
    migrate.migrate(database, to="0001")
    bought = intent("confirmed", approved_by=("ana",), state_at=NOW, fee_usd=25_000)
    said = {"approval_round": 0, "envelope": document(bought.envelope), "purchase_id": bought.id}
    with database.write() as connection:
        assert not inspect(connection).has_table("cost_lines")
        whose = {"id": 1, "created_at": NOW, "epoch": 3, **document(OURS)}
        connection.execute(insert(schema.ledger).values(**whose))
        connection.execute(insert(schema.launches).values(**launch_row(launch_intent())))
        row = {name: one for name, one in purchase_row(bought).items() if name not in ("start", "end")}
        connection.execute(insert(schema.purchases).values(**row, approval_round=0))
        for one in bought.verdicts:
            words = {"who": one.who, "at": one.at, "approved": one.approved, "note": one.note}
            connection.execute(insert(schema.verdicts).values(**said, **words))
    database.close()

    ledger = opened(url)
    assert ledger.purchases() == (bought,)
    assert ledger.launches() == (launch_intent(),)
    assert ledger.whose() == OURS
    ledger.meter(CostLine("i-1", "g6", SourceKind.ON_DEMAND, 2.0, NOW))
    assert ledger.spending(NOW).fees_usd == 25_000


def test_a_migration_that_dies_halfway_leaves_the_version_there_was(
    url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
):
    from alembic import op

    database = open_ledger._database(url)
    migrate.migrate(database, to="0001")

    def power_cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(op, "create_index", power_cut)  # the table is made by then
        with pytest.raises(KeyboardInterrupt):
            migrate.migrate(database)
    with database.read() as connection:
        assert migrate.version_of(connection) == "0001"
        assert not inspect(connection).has_table("cost_lines")
    database.close()
    assert opened(url).metered() == ()


def test_an_up_to_date_ledger_is_opened_without_a_write(url: str, opened: Opener):
    ledger = opened(url)
    trail = ledger.audit()
    assert opened(url).audit() == trail
    with inside(ledger) as connection:
        assert connection.execute(select(schema.ledger.c.epoch)).scalar() == 0
        assert connection.execute(text("SELECT count(*) FROM alembic_version")).scalar() == 1
