"""The verbs that touch an account, through boto3, on the wire (`--aws`), and what they say where AWS forbids it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from contextlib import closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.aws.wired import Wired
from tests.cli.purchaser import CommandResult, Purchaser, pool
from tests.sim.account import P5, ZONES
from tidemill.aws.errors import CallKind
from tidemill.aws.session import Aws
from tidemill.spec.scenario import OwnedReservation

WISH = (P5, "--count", "2", "--duration", "2d", "--from", "2026-11-18", "--to", "2026-11-22")
AUTO = {"autoMaxFeeUsd": 40_000}
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "real-account.md"


class AwsOffice(Purchaser):
    """The same office, and the account its credentials reach."""

    def environment(self, who: str = "you") -> dict[str, str]:
        return {**super().environment(who), "TIDEMILL_SIM": "", "TIDEMILL_AWS": "1"}


@pytest.fixture
def office(tmp_path: Path, wired: Wired) -> AwsOffice:
    made = AwsOffice(tmp_path)
    made.write(mode="auto", approval=AUTO, subnets={zone: [f"subnet-{zone}"] for zone in ZONES})
    return made


def untouched(wired: Wired, office: Purchaser) -> bool:
    return not wired.account.cloud.purchases and not Path(office.folder / "ledger.db").exists()


@pytest.mark.requirement("CB-3")
def test_find_buy_follow_extend_and_rebuild_on_an_account(wired: Wired, office: AwsOffice):
    offer = office.offer(*WISH)
    told = office("buy", offer["id"], "--yes")
    assert told.code == 0, told.err
    assert "SIMULATED AWS at http://127.0.0.1" in told.err
    assert "account 123456789012, assumed-role/tidemill-engine/rehearsal, us-east-1" in told.err
    wired.let_pass(_minutes(10))
    (block,) = office.blocks()
    assert (block["state"], block["held"]) == ("scheduled", "bought")
    assert office("extend", block["id"], "--by", "1d", "--yes").code == 0
    assert (len(wired.account.cloud.purchases), len(wired.account.cloud.bought_extensions)) == (1, 1)
    wired.let_pass(_minutes(10))
    again = office("ledger", "rebuild", f"sqlite:///{office.folder / 'again.db'}", "--yes", "--json")
    assert again.code == 0, again.err
    office.ledger = f"sqlite:///{office.folder / 'again.db'}"
    assert sorted(purchase["fee_usd"] for purchase in office.purchases()) == sorted(
        [wired.account.cloud.purchases[0].fee_usd, wired.account.cloud.bought_extensions[0].fee_usd]
    )


@pytest.mark.requirement("CB-17")
def test_a_block_bought_elsewhere_is_adopted_and_tagged(wired: Wired, office: AwsOffice):
    block = wired.account.block(owned=False)
    told = office("adopt", block.id, "--pool", "train", "--yes")
    assert told.code == 0, told.err
    assert dict(wired.account.reservation(block.id).tags)["deployment"] == "mill"
    assert office.blocks()[0]["held"] == "adopted"


@pytest.mark.requirement("CB-17")
def test_an_adoption_that_is_undone_leaves_no_tag_of_ours_and_those_of_others(
    wired: Wired, office: AwsOffice
):
    block = wired.account.block(owned=False)
    wired.account.cloud.tag_reservation(block.id, (("team", "vision"),))
    office("adopt", block.id, "--pool", "train", "--yes")
    told = office("adopt", block.id, "--undo", "--yes")
    assert told.code == 0, told.err
    assert "its tag deployment is removed" in told.out
    assert wired.account.reservation(block.id).tags == (("team", "vision"),)


@pytest.mark.requirement("CB-17")
def test_a_block_that_another_account_shares_is_adopted_without_a_tag(wired: Wired, office: AwsOffice):
    owned = OwnedReservation(
        name="theirs", instance_type=P5, count=1, zone=ZONES[0], duration=timedelta(days=3)
    )
    id_ = wired.account.cloud.add_reservation(owned, owner="", shared_by="111122223333")
    told = office("adopt", id_, "--pool", "train", "--yes")
    assert told.code == 0, told.err
    assert "deployment" not in dict(wired.account.reservation(id_).tags)
    assert office.blocks()[0]["held"] == "adopted"


@pytest.mark.requirement("SM-2")
def test_plan_lists_what_would_change_in_the_account_and_changes_nothing(wired: Wired, office: AwsOffice):
    office.write(
        pool("train", P5, provisioner="asg"),
        subnets={zone: [f"subnet-{zone}"] for zone in ZONES},
        nodeRole="mill-node",
        securityGroups=["sg-0123456789abcdef0"],
        cluster={
            "name": "ml",
            "endpoint": "https://ml",
            "certificateAuthority": "Y2E=",
            "serviceCidr": "10.0.0.0/16",
        },
    )
    role = "arn:aws:iam::123456789012:role/mill"
    network: dict[str, list[str]] = {"subnetIds": []}
    with closing(Aws("us-east-1")) as somebody:
        somebody.call(
            "eks", "CreateCluster", CallKind.CHANGE, name="ml", roleArn=role, resourcesVpcConfig=network
        )
    block = wired.account.block()
    documents = str(office.documents)
    told = office("plan", documents, "--aws", "--json")
    assert told.code == 0, told.err
    about = [one["about"] for one in told.json["changes"]]
    assert f"group mill-train-{block.id}" in about
    assert "no ledger at" in told.err
    assert not wired.account.cloud.groups.all()
    assert "create" in office("plan", documents, "--aws").out
    office.write(pool("train", P5, provisioner="asg"), subnets={zone: [f"subnet-{zone}"] for zone in ZONES})
    told = office("plan", documents, "--aws")
    assert "nodes of pool train could never join the cluster" in told.err


@pytest.mark.requirement("CB-4")
def test_a_purchase_that_is_not_answered_is_exit_code_4_and_is_found_again(wired: Wired, office: AwsOffice):
    offer = office.offer(*WISH)
    wired.fault("lost-answer", action="PurchaseCapacityBlock")
    told = office("buy", offer["id"], "--yes", "--json")
    assert told.code == 4
    (intent,) = office.purchases()
    assert intent["state"] == "unknown"
    wired.let_pass(_minutes(10))
    assert office("settle", intent["id"], "--yes").code == 0
    assert office.state(intent["id"]) == "confirmed"
    assert len(wired.account.cloud.purchases) == 1


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("status", [400, 503])
@pytest.mark.parametrize("fault", ["error", "error-after"])
def test_an_unlisted_error_of_a_purchase_is_printed_and_kept_with_its_code_and_request_id(
    wired: Wired, office: AwsOffice, fault: str, status: int
):
    """Still a doubt: only codes that are known to mean so are a no."""
    offer = office.offer(*WISH)
    wired.fault(
        fault, action="PurchaseCapacityBlock", code="CapacityBlockPurchaseDeferred", status=status,
        message="Your purchase is being reviewed",
    )  # fmt: skip
    told = office("buy", offer["id"], "--yes")
    assert told.code == 4
    (intent,) = office.purchases()
    assert intent["state"] == "unknown"
    reason = intent["reason"]
    assert (reason["kind"], reason["code"]) == ("answer-unknown", "CapacityBlockPurchaseDeferred")
    assert reason["request_id"]
    for said in ("Your purchase is being reviewed (CapacityBlockPurchaseDeferred)", reason["request_id"]):
        assert said in told.err
        assert fault == "error-after" or said in office("settle", intent["id"]).err
    assert "did not answer" not in told.err
    assert office("buy", intent["id"], "--yes").code != 0
    assert len(wired.account.cloud.purchases) == (fault == "error-after")


@pytest.mark.requirement("CB-1")
def test_a_search_that_ec2_refuses_does_not_stop_the_others(wired: Wired, office: AwsOffice):
    wired.fault(
        "error", action="DescribeCapacityBlockOfferings", code="InvalidParameterValue", status=400,
        message="The instance type is not supported for Capacity Blocks",
    )  # fmt: skip
    told = office("offers", *WISH, "--count", "1,2")
    assert told.code == 0, told.err
    assert "EC2 rejects the request" in told.err
    assert "not supported for Capacity Blocks (InvalidParameterValue)" in told.err
    assert "cb-" in told.out


@pytest.mark.requirement("CB-1")
def test_several_regions_are_searched_and_one_that_refuses_the_credentials_is_said(
    wired: Wired, office: AwsOffice
):
    told = office("offers", *WISH, "--region", "us-east-1,us-east-2,ap-southeast-4", "--json")
    assert told.code == 0, told.err
    assert {one["region"] for one in told.json["offers"]} == {"us-east-1", "us-east-2"}
    assert "AuthFailure" in told.json["unanswered"]["ap-southeast-4"]
    shown = office("offers", *WISH, "--all-regions")
    assert "ap-southeast-4 was not searched" in shown.err
    assert "a region that your account has not enabled refuses your credentials" in shown.err
    assert untouched(wired, office)


def test_the_guides_commands_do_what_the_guide_says(
    wired: Wired, office: AwsOffice, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(office.documents)
    (office.documents / "all.yaml").rename("platform.yaml")
    fenced = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    lines = [line.partition("#")[0].split()[1:] for block in fenced for line in block.splitlines() if line]
    assert len(lines) >= 4
    for line in lines:
        told = office(*line)
        assert told.code == 0, (line, told.err)
        assert told.out, line


# --- AWS does not let us ------------------------------------------------------------------------------


def refused(told: CommandResult, *words: str) -> None:
    assert told.code == 3, (told.code, told.out, told.err)
    last = told.err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "Traceback" not in told.err
    for word in words:
        assert word in last, last


@pytest.mark.requirement("PE-23")
def test_a_missing_read_permission_is_one_sentence_with_the_action(wired: Wired, office: AwsOffice):
    wired.fault(
        "error", action="DescribeCapacityReservations", code="UnauthorizedOperation", status=403, times=9,
        message="You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/you is not "
        "authorized to perform: ec2:DescribeCapacityReservations because no identity-based policy allows it",
    )  # fmt: skip
    refused(
        office("blocks"),
        "AWS does not allow ec2:DescribeCapacityReservations to arn:aws:iam::123456789012:user/you",
        "`tidemill iam observer` prints a policy that does",
    )


@pytest.mark.requirement("PE-23")
def test_without_permission_to_buy_nothing_is_bought_and_the_intent_stays_open(
    wired: Wired, office: AwsOffice
):
    offer = office.offer(*WISH)
    wired.fault(
        "error", action="PurchaseCapacityBlock", code="UnauthorizedOperation", status=403, message="no"
    )
    refused(office("buy", offer["id"], "--yes"), "ec2:PurchaseCapacityBlock", "`tidemill iam purchaser`")
    assert wired.account.cloud.purchases == []
    (intent,) = office.purchases()
    assert (intent["state"], intent["fee_usd"]) == ("approved", 0)
    assert office("buy", intent["id"], "--yes").code == 0
    assert len(wired.account.cloud.purchases) == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("AuthFailure", "`aws sts get-caller-identity` must work"),
        ("InvalidClientTokenId", "does not accept these credentials for sts:GetCallerIdentity in us-east-1"),
        ("SignatureDoesNotMatch", "Check the key"),
        ("ExpiredToken", "log in again"),
        ("OptInRequired", "this account may not use sts:GetCallerIdentity in us-east-1"),
    ],
)
def test_rejected_credentials_change_nothing(wired: Wired, office: AwsOffice, code: str, words: str):
    wired.fault("error", action="GetCallerIdentity", code=code, status=403, message="no", times=9)
    for verb in (("blocks",), ("offers", *WISH), ("adopt", "cr-1", "--yes"), ("buy", "cb-1", "--yes")):
        refused(office(*verb), words)
    assert untouched(wired, office)


def test_without_credentials_it_says_where_they_could_come_from(
    wired: Wired, office: AwsOffice, monkeypatch: pytest.MonkeyPatch
):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    refused(
        office("blocks"), "there are no usable AWS credentials for sts:GetCallerIdentity", "Set AWS_PROFILE"
    )
    assert untouched(wired, office)


def test_incomplete_credentials_or_a_missing_profile_are_reported(
    wired: Wired, office: AwsOffice, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    refused(office("blocks"), "AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    refused(office("blocks"), "nobody")
    assert untouched(wired, office)


def test_a_region_that_does_not_exist_is_reported(
    wired: Wired, office: AwsOffice, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://sts.us-esat-1.invalid")
    office.write(mode="auto", approval=AUTO, region="us-esat-1", subnets={"us-esat-1a": ["subnet-1"]})
    refused(office("blocks"), "sts:GetCallerIdentity", "region 'us-esat-1'", "check the region's spelling")
    assert untouched(wired, office)


def test_an_account_that_is_not_the_platforms_is_not_touched(wired: Wired, office: AwsOffice):
    office.write(mode="auto", approval=AUTO, accountId="999999999999", subnets={ZONES[0]: ["subnet-1"]})
    told = office("blocks")
    assert told.code == 1
    assert "use credentials of 999999999999" in told.err


@pytest.mark.requirement("CB-4")
def test_looking_makes_no_ledger_and_binds_none(wired: Wired, office: AwsOffice):
    """A region that was mistyped once must not become the ledger's for good."""
    right = {"subnets": {zone: [f"subnet-{zone}"] for zone in ZONES}}
    office.write(mode="auto", approval=AUTO, region="us-east-2", subnets={"us-east-2a": ["subnet-1"]})
    looks = (
        ("blocks",), ("offers", *WISH), ("approve",), ("approve", "tp-1", "--yes"), ("settle", "tp-1"),
        ("buy", "tp-1", "--yes"), ("extend", "cr-0123456789abcdef0", "--by", "1d", "--yes"),
        ("adopt", "cr-0123456789abcdef0", "--yes"), ("adopt", "cr-0123456789abcdef0", "--undo", "--yes"),
        ("inspect",), ("ledger", "rebuild", office.ledger),
    )  # fmt: skip
    for look in looks:
        office(*look)
        assert not (office.folder / "ledger.db").exists(), look
    office.write(mode="auto", approval=AUTO, **right)
    assert office("buy", office.offer(*WISH)["id"], "--yes").code == 0
    office.write(mode="auto", approval=AUTO, region="us-east-2", subnets={"us-east-2a": ["subnet-1"]})
    told = office("blocks")
    assert told.code == 1
    assert "this ledger belongs to region us-east-1, not to us-east-2" in told.err


class _Version(BaseHTTPRequestHandler):
    """As much of an API server as the controller asks before it looks at AWS."""

    def do_GET(self) -> None:
        body = b'{"major": "1", "minor": "33", "gitVersion": "v1.33.0"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize(
    ("region", "code", "says"),
    [
        ("us-east-2", 3, "this account may not use ec2:DescribeSubnets in us-east-2"),
        ("us-east-1", 2, "none of its subnets (subnet-0ff) is in us-east-1"),
    ],
    ids=["a region that is not ours", "subnets of another region"],
)
def test_a_controller_with_a_mistyped_region_ends_before_it_makes_a_ledger(
    wired: Wired, office: AwsOffice, region: str, code: int, says: str
):
    office.write(mode="auto", approval=AUTO, region=region, subnets={f"{region}a": ["subnet-0ff"]})
    with ThreadingHTTPServer(("127.0.0.1", 0), _Version) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = office.folder / "config"
        config.write_text(
            f"clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{server.server_port}'}}}}]\n"
            "users: [{name: me, user: {token: t}}]\n"
            "contexts: [{name: a, context: {cluster: a, user: me}}]\ncurrent-context: a\n"
        )
        command = ("run", "-f", str(office.documents), "--aws", "--kubeconfig", str(config))
        done = subprocess.run(
            (sys.executable, "-m", "tidemill", *command), capture_output=True, text=True, check=False, timeout=90,
            env=os.environ | office.environment(),
        )  # fmt: skip
        server.shutdown()
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
    assert untouched(wired, office)


def _minutes(number: int) -> timedelta:
    return timedelta(minutes=number)
