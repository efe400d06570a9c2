"""`tidemill inspect` on an account over the wire: everything is found, nothing changed, and what is denied is said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.aws.troubled import Troubled
from tests.cli.purchaser import P5, Purchaser, pool
from tests.sim.account import GB200, ZONES
from tests.wire.server_builder import SimulatedAws
from tidemill.aws.account_survey import ReadOnlyAws
from tidemill.aws.errors import CallKind
from tidemill.aws.iam import PERMISSIONS, Role
from tidemill.cli import main
from tidemill.model.errors import Refused
from tidemill.sim.wire import protocol

DENIED = {"code": "UnauthorizedOperation", "status": 403, "message": "no", "times": 99}


@pytest.fixture(scope="module")
def there() -> Iterator[Troubled]:
    """One account for all: that this works shows again that nothing is changed."""
    aws = SimulatedAws()
    try:
        yield Troubled(aws)
    finally:
        aws.stop()


@pytest.fixture(autouse=True)
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIDEMILL_SIM", "TIDEMILL_FILES", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    aws = request.getfixturevalue("there").aws
    for name, value in aws.server.environment.items():
        monkeypatch.setenv(name, value)
    aws.server.wire.faults = type(aws.server.wire.faults)()  # those of the test before


@pytest.fixture
def asked(there: Troubled, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Service and action of every request that reaches AWS."""
    found: list[tuple[str, str]] = []
    read = protocol.target

    def recording(environ: dict[str, Any]) -> Any:
        target = read(environ)
        assert target is not None
        found.append((target.service, target.action))
        return target

    monkeypatch.setattr(protocol, "target", recording)
    return found


def deny(there: Troubled, *actions: str, **given: Any) -> None:
    for action in actions:
        there.aws.admin("faults", {"fault": "error", "action": action, **DENIED, **given})


def inspected(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["inspect", "--aws", "--json", *arguments]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def written(at: Any) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


# --- only reading -------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-22")
def test_every_call_it_makes_reads_and_the_observer_may_make_it(
    there: Troubled, asked: list[tuple[str, str]], capsys
):
    before = there.aws.cloud.groups.version, len(there.aws.cloud.journal.lines)
    found = inspected(capsys)
    assert (there.aws.cloud.groups.version, len(there.aws.cloud.journal.lines)) == before
    assert not found["not_read"]
    assert len(asked) >= 10
    assert all(action.startswith(("Describe", "Get", "List")) for _, action in asked), asked
    allowed = {one.call for one in PERMISSIONS if one.role is Role.OBSERVER}
    assert {f"{service}:{action}" for service, action in asked} <= allowed


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("TerminateInstances", CallKind.CHANGE),
        ("PurchaseCapacityBlock", CallKind.PURCHASE),
        ("CreateTags", CallKind.READ),
    ],
)  # fmt: skip
def test_the_survey_session_refuses_every_call_that_is_not_a_read(operation: str, kind: CallKind):
    with pytest.raises(Refused, match="only reads"):
        ReadOnlyAws("us-east-1").call("ec2", operation, kind)


# --- what it finds ------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-22")
def test_blocks_come_with_their_deadlines_without_any_document(there: Troubled, capsys):
    found = inspected(capsys)
    assert (found["account"], found["region"], found["deployment"]) == ("123456789012", "us-east-1", "")
    by_id = {one["id"]: one for one in found["blocks"]}
    assert list(by_id) == [there.ours.id, there.theirs.id, there.later.id], "the soonest to end first"
    ours, end = by_id[there.ours.id], there.end(there.ours)
    assert (ours["count"], ours["used"], ours["free"], ours["state"]) == (8, 5, 3, "active")
    assert ours["kill_at"] == written(end - timedelta(minutes=30))
    assert ours["extend_until"] == written(end - timedelta(hours=1))
    assert (ours["held"], ours["owner"]) == ("another's", "mill"), "without documents nothing is ours"
    assert by_id[there.later.id]["state"] == "scheduled"
    assert found["untracked"] == [there.theirs.id]


@pytest.mark.requirement("PE-22")
def test_endings_are_listed_in_order_with_their_owners(there: Troubled, capsys):
    end = there.end(there.ours)
    told = [(one["at"], one["whose"], len(one["instances"])) for one in inspected(capsys)["endings"]]
    assert told == [
        (written(end - timedelta(minutes=50)), "deployment mill, pool train", 1),
        (written(end - timedelta(minutes=40)), "Karpenter, NodePool gpu", 1),
        (written(end - timedelta(minutes=40)), "node group train-a", 1),
        (written(end - timedelta(minutes=30)), "Auto Scaling group forever", 2),
        (written(there.end(there.theirs) - timedelta(minutes=30)), "nobody (left-over)", 1),
    ]


@pytest.mark.requirement("PE-22")
@pytest.mark.requirement("MG-2")
def test_groups_are_listed_with_their_schedules_and_whether_they_are_in_time(there: Troubled, capsys):
    found = inspected(capsys)
    forever, g, managed = sorted(found["groups"], key=lambda one: (one["kind"], one["name"]))
    assert (forever["name"], forever["in_time"], forever["hook_s"]) == ("forever", False, None)
    assert forever["zones"] == [ZONES[0], ZONES[1]]
    assert (g["name"], g["in_time"], g["hook_s"], g["desired"], g["members"]) == ("g", True, 1800, 1, 1)
    assert (managed["node_group"], managed["cluster"], managed["in_time"]) == ("train-a", "ml", True)
    (theirs,) = managed["actions"]
    assert theirs["eks"]
    assert theirs["at"] == written(there.end(there.ours) - timedelta(minutes=40))
    assert {tuple(one["reservations"]) for one in found["groups"]} == {(there.ours.id,)}
    assert found["other_groups"] == 1


@pytest.mark.requirement("PE-22")
@pytest.mark.requirement("TR-10")
def test_each_trap_of_the_account_is_found_with_its_remedy(there: Troubled, capsys):
    traps = inspected(capsys)["traps"]
    assert [(trap["code"], trap["about"]) for trap in traps] == [
        ("outlives-block", "forever"),
        ("TR-10", "forever"),
        ("no-terminate-hook", "forever"),
        ("hook-too-long", "g"),
        ("nobody-drains", there.theirs.id),
        ("ends-without-successor", there.ours.id),
        ("idle", there.ours.id),
        ("idle", there.theirs.id),
    ]
    assert all(trap["fix"] for trap in traps)


def test_the_terminal_shows_everything_and_what_was_not_read(there: Troubled, capsys):
    assert main(["inspect", "--region", "us-east-1"]) == 0
    told = capsys.readouterr()
    for word in (
        there.ours.id,
        "forever",
        "NO",
        "nobody (left-over)",
        "[TR-10]",
        "8 traps",
        "Untracked",
        "$113/h",
    ):
        assert word in told.out, word
    assert "Pods were not read" in told.out
    assert "SIMULATED AWS at http://127.0.0.1" in told.err
    assert "nothing is changed" in told.err


# --- with documents -----------------------------------------------------------------------------------


@pytest.mark.requirement("PE-22")
@pytest.mark.requirement("CB-17")
def test_with_documents_it_lists_what_is_ours_and_what_could_be_adopted(
    there: Troubled, capsys, tmp_path: Path
):
    office = Purchaser(tmp_path)
    office.write(pool("train", P5), pool("ultra", GB200))
    found = inspected(capsys, str(office.documents))
    assert found["deployment"] == "mill"
    claims = {one["id"]: (one["would"], one["pools"]) for one in found["claims"]}
    assert claims == {
        there.ours.id: ("own", ["train"]),
        there.theirs.id: ("adopt", ["train"]),
        there.later.id: ("own", []),  # the platform has no subnets there
    }
    (theirs,) = (one for one in found["claims"] if one["would"] == "adopt")
    assert theirs["why"] == f"tidemill adopt {there.theirs.id} --pool train"
    assert {one["id"]: one["held"] for one in found["blocks"]}[there.ours.id] == "tagged"


def test_traps_in_the_documents_are_listed_too(there: Troubled, capsys, tmp_path: Path):
    office = Purchaser(tmp_path)
    office.write(pool("train", P5, limits={}))
    problems = inspected(capsys, "-f", str(office.documents))["problems"]
    assert any(problem["code"] == "TR-9" and problem["line"] for problem in problems), problems


def test_documents_of_another_region_or_account_are_an_error(there: Troubled, capsys, tmp_path: Path):
    office = Purchaser(tmp_path)
    office.write()
    assert main(["inspect", str(office.documents), "--region", "eu-west-1"]) == 2
    assert "the Platform is in us-east-1" in capsys.readouterr().err
    office.write(accountId="999999999999")
    assert main(["inspect", "--aws", str(office.documents)]) == 1
    assert "the Platform is in account 999999999999" in capsys.readouterr().err


# --- what may not be read -----------------------------------------------------------------------------


@pytest.mark.requirement("PE-22")
@pytest.mark.parametrize(
    ("action", "what"),
    [
        ("DescribeAutoScalingGroups", "Auto Scaling groups"),
        ("DescribeScheduledActions", "scheduled actions"),
        ("DescribeSubnets", "subnets of the groups"),
        ("DescribeInstances", "instances"),
        ("DescribeCapacityBlockExtensionHistory", "extensions of blocks"),
        ("DescribeNodegroup", "health of node groups of train-a"),
        ("DescribeLifecycleHooks", "lifecycle hooks of eks-train-a-"),
        ("DescribeLaunchTemplateVersions", "launch templates of eks-train-a-"),
    ],
)
def test_a_missing_permission_is_one_line_and_the_rest_is_there(
    there: Troubled, capsys, action: str, what: str
):
    deny(there, action)
    found = inspected(capsys)
    assert len(found["blocks"]) == 3
    (missed,) = found["not_read"]
    assert missed["what"].startswith(what)
    assert re.search(rf"AWS does not allow \w+:{action}\b", missed["why"])
    assert "`tidemill iam observer`" in missed["why"]
    judged = {one["code"] for one in found["traps"]}
    assert "block-is-gone" not in judged
    if action == "DescribeScheduledActions":
        assert "outlives-block" not in judged, "what could not be read is not judged"
    if action == "DescribeLifecycleHooks":
        assert not {"no-terminate-hook", "hook-too-long"} & judged


def test_a_denied_call_per_group_is_made_once(there: Troubled, asked: list[tuple[str, str]], capsys):
    deny(there, "DescribeLifecycleHooks")
    inspected(capsys)
    assert asked.count(("autoscaling", "DescribeLifecycleHooks")) == 1


@pytest.mark.requirement("PE-22")
def test_where_blocks_may_not_be_read_the_rest_is_shown_and_the_exit_code_is_3(there: Troubled, capsys):
    deny(there, "DescribeCapacityReservations")
    found = inspected(capsys, code=3)
    assert found["blocks"] is None
    assert {one["name"] for one in found["groups"]} >= {"forever", "g"}
    assert found["traps"] == [] or "block-is-gone" not in {one["code"] for one in found["traps"]}


def test_without_permission_for_blocks_it_does_not_claim_that_there_are_no_traps(there: Troubled, capsys):
    for one in ("DescribeCapacityReservations", "DescribeAutoScalingGroups"):
        deny(there, one)
    assert main(["inspect", "--aws"]) == 3
    told = capsys.readouterr().out
    assert "No trap" not in told
    assert "Blocks could not be read, so traps were not checked." in told


def test_without_any_permission_it_is_one_sentence_and_exit_code_3(there: Troubled, capsys):
    deny(there, "GetCallerIdentity", code="InvalidClientTokenId")
    assert main(["inspect", "--aws"]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: AWS does not accept these credentials")


def test_blocks_that_aws_fails_to_list_are_a_failure_and_not_an_empty_account(there: Troubled, capsys):
    deny(there, "DescribeCapacityReservations", code="InternalError", status=500)
    assert inspected(capsys, code=1)["blocks"] is None


# --- which account ------------------------------------------------------------------------------------


def test_the_account_is_named_by_the_user_and_never_guessed(there: Troubled, capsys, tmp_path: Path):
    assert main(["inspect"]) == 2
    assert "no AWS account; add --aws" in capsys.readouterr().err
    assert main(["inspect", "--aws", "--sim", str(tmp_path / "a.json")]) == 2
    assert "two accounts" in capsys.readouterr().err
    assert main(["inspect", "--sim", str(tmp_path / "a.json")]) == 2
    assert "there is no simulated account" in capsys.readouterr().err
    assert not (tmp_path / "a.json").exists()
