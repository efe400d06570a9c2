"""A ledger made by any earlier version becomes one of this version, with everything that was in it."""

from __future__ import annotations

from dataclasses import replace

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
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import CostLine
from tidemill.store import migrate, open_ledger, schema
from tidemill.store.rows import document, launch_row, purchase_row


def test_the_listed_schema_versions_are_the_migrations_that_exist():
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


# Columns of purchases and of launches that the first version did not have.
LATER = (
    "start",
    "end",
    "reason",
    "reason_data",
    "node_class",
    "planned_start",
    "least",
    "answer",
    "failing_since",
)


@pytest.mark.requirement("CB-4")
def test_a_ledger_of_the_first_version_is_brought_up_to_date(url: str, opened: Opener, clock: Hands):
    database = open_ledger._database(url)
    migrate.migrate(database, to="0001")
    bought = intent("confirmed", approved_by=("ana",), state_at=NOW, fee_usd=25_000)
    said = {"approval_round": 0, "envelope": document(bought.envelope), "purchase_id": bought.id}
    with database.write() as connection:
        assert not inspect(connection).has_table("cost_lines")
        owner = {"id": 1, "created_at": NOW, "epoch": 3, **document(OURS)}
        connection.execute(insert(schema.ledger).values(**owner))
        launch = {name: one for name, one in launch_row(launch_intent()).items() if name not in LATER}
        connection.execute(insert(schema.launches).values(**launch))
        row = {name: one for name, one in purchase_row(bought).items() if name not in LATER}
        connection.execute(insert(schema.purchases).values(**row, approval_round=0))
        for one in bought.verdicts:
            words = {"who": one.who, "at": one.at, "approved": one.approved, "note": one.note}
            connection.execute(insert(schema.verdicts).values(**said, **words))
    database.close()

    ledger = opened(url)
    assert ledger.purchases() == (bought,)
    assert ledger.launches() == (launch_intent(),)
    assert ledger.owner() == OURS
    ledger.meter(CostLine("i-1", "g6", SourceKind.ON_DEMAND, 2.0, NOW))
    assert ledger.spending(NOW).fees_usd == 25_000


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize(
    ("state", "note", "reason", "left"),
    [
        ("approved", "not bought: no offer inside its envelope", PurchaseReason(ReasonKind.NO_OFFER), ""),
        (
            "approved",
            "not bought: the offer is gone",
            PurchaseReason(ReasonKind.REFUSED_BY_AWS, detail="the offer is gone"),
            "",
        ),
        (
            "proposed",
            "only sold from $31,000 by now, above its envelope: it needs another approval",
            PurchaseReason(ReasonKind.DEARER_THAN_APPROVED, fee_usd=31_000),
            "",
        ),
        (
            "approved",
            "inside what the policy buys by itself",
            PurchaseReason(ReasonKind.APPROVED_BY_POLICY),
            "",
        ),
        ("refused", "found it: too dear", None, "found it: too dear"),
        ("submitted", "offer cbo-1, $25,000", None, ""),
        (
            "confirmed",
            "found by its tag: cr-1, cr-2",
            PurchaseReason(ReasonKind.FOUND_BY_TAG, reservation_ids=("cr-1", "cr-2")),
            "",
        ),
        (
            "confirmed",
            "arn:aws:iam::1:user/ana found it: in the console",
            PurchaseReason(ReasonKind.FOUND_BY_PERSON, name="arn:aws:iam::1:user/ana"),
            "in the console",
        ),
        (
            "failed",
            "ana made sure that nothing was bought: the bill: empty",
            PurchaseReason(ReasonKind.NOT_BOUGHT_SAYS_PERSON, name="ana"),
            "the bill: empty",
        ),
        ("failed", "its payment failed: nothing was bought", PurchaseReason(ReasonKind.PAYMENT_FAILED), ""),
        ("voided", "its demand is covered by now", PurchaseReason(ReasonKind.COVERED), ""),
        ("unknown", "the call's outcome is unknown", PurchaseReason(ReasonKind.ANSWER_UNKNOWN), ""),
        (
            "confirmed",
            "rebuilt from its tags; its fee is the list price",
            PurchaseReason(ReasonKind.REBUILT_FROM_TAGS, fee_estimated=True),
            "",
        ),
        (
            "confirmed",
            "rebuilt: ana says that this was spent besides",
            PurchaseReason(ReasonKind.REBUILT_SPENDING, name="ana"),
            "",
        ),
        ("voided", "said by hand in the database", None, "said by hand in the database"),
    ],
)
def test_sentences_of_an_earlier_version_become_reasons(
    url: str, opened: Opener, state: str, note: str, reason: PurchaseReason | None, left: str
):
    database = open_ledger._database(url)
    migrate.migrate(database, to="0006")
    held = intent(state, note=note, state_at=NOW)
    with database.write() as connection:
        connection.execute(insert(schema.ledger).values(id=1, created_at=NOW, epoch=3, **document(OURS)))
        later = ("reason", "reason_data", "planned_start")
        row = {name: one for name, one in purchase_row(held).items() if name not in later}
        connection.execute(insert(schema.purchases).values(**row, approval_round=0))
    database.close()

    assert opened(url).purchases() == (replace(held, reason=reason, note=left),)


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
