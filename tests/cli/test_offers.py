"""`tidemill offers`: one command for many requests, what EC2 never sells, and alternatives when it finds nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from tests.cli.purchaser import P5, Purchaser, pool
from tidemill.model.errors import Retryable
from tidemill.model.offers import Offer, OfferQuery
from tidemill.sim.cloud.account import SimAccount

pytestmark = pytest.mark.requirement("CB-1")
WEEK = ("--from", "2026-11-18", "--to", "2026-11-25")


def test_several_types_counts_durations_and_zones_give_one_table_by_price(purchaser: Purchaser):
    result = purchaser.open()("offers", P5, "p4d.24xlarge", "--count", "1,2", "--duration", "1d,7d", *WEEK,
                         "--zone", "us-east-1a", "--zone", "us-east-1b", "--json")  # fmt: skip
    assert (result.code, result.json["requests"]) == (0, 16)
    assert set(result.json) == {
        "at", "region", "regions", "unanswered", "requests", "interrupted", "failed", "refused", "offers",
        "alternatives", "tried", "cut_short",
    }  # fmt: skip
    found = result.json["offers"]
    prices = [one["usd_per_gpu_h"] for one in found]
    assert all(one <= following + 0.01 for one, following in pairwise(prices))  # to the cent, as it is shown
    kinds = {(one["type"], one["count"], one["asked_duration"], one["zone"]) for one in found}
    assert len(kinds) == 16
    assert all("2026-11-18" <= one["start"][:10] <= "2026-11-25" for one in found)


def test_a_list_that_ec2_cut_short_says_so(purchaser: Purchaser):
    """EC2 answers a request with six offers at most; on one day in one zone it has fewer."""
    cut = purchaser.open()("offers", P5, "--count", "1", "--duration", "1d")
    assert "EC2 answers a request with at most 6 offers, the cheapest, so there may be more" in cut.out
    whole = purchaser(
        "offers", P5, "--start", "2026-11-20", "--duration", "1d", "--zone", "us-east-1a", "--json"
    )
    assert (len(whole.json["offers"]) < 6, whole.json["cut_short"]) == (True, False)


def test_the_table_shows_fee_and_price_compared_with_on_demand(purchaser: Purchaser):
    result = purchaser.open()("offers", P5, "--count", "2", "--duration", "7d", *WEEK)
    first = next(line for line in result.out.splitlines() if "cb-" in line)
    assert all(word in first for word in (P5, "us-east-1", "168", "$", "-3"))
    assert "On-demand prices of 2026-" in result.out
    assert "SIMULATED AWS" in result.err
    assert "account 123456789012, user/you, us-east-1" in result.err


@pytest.mark.requirement("CB-15")
def test_ultraservers_and_trainium_are_sold_too(purchaser: Purchaser):
    found = purchaser.open()("offers", "p6e-gb200.36xlarge", "trn2.48xlarge", "--count", "18", "--json").json[
        "offers"
    ]
    assert {(one["type"], one["ultraserver"]) for one in found} == {
        ("p6e-gb200.36xlarge", True),
        ("trn2.48xlarge", False),
    }


def test_each_start_date_is_one_request(purchaser: Purchaser):
    result = purchaser.open()("offers", P5, "--start", "2026-11-20,2026-12-24", "--json")
    assert result.json["requests"] == 2
    assert {one["start"][:10] for one in result.json["offers"]} == {"2026-11-20", "2026-12-24"}


def test_pool_searches_the_types_of_the_pool(purchaser: Purchaser):
    purchaser.write(pool("any", P5, "trn1.32xlarge", "g6.xlarge"))
    assert purchaser("sim", "new", str(purchaser.sim), "--at", "2026-11-16T08:00:00Z").code == 0
    found = purchaser("offers", "--pool", "any", "--json").json["offers"]
    assert {one["type"] for one in found} == {P5, "trn1.32xlarge"}


@pytest.mark.requirement("CB-2")
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ((P5, "--duration", "180d"), "EC2 does not sell 180d; the nearest it sells: 175d and 182d"),
        ((P5, "--duration", "36h"), "EC2 does not sell 1d12h; the nearest it sells: 1d and 2d"),
        ((P5, "--count", "65"), "a block has 1 to 64 instances, not 65"),
        (("p6e-gb200.36xlarge", "--count", "10"), "ask for 9 or 18, not 10"),
        (("g6.xlarge",), "g6.xlarge is not sold as Capacity Blocks"),
        (("p5.48xlage",), "did you mean 'p5.48xlarge'?"),
        ((P5, "--from", "2027-06-01"), "EC2 sells at most 8 weeks ahead"),
        ((P5, "--to", "2026-11-01"), "is past"),
        ((P5, "--zone", "us-east-1f"), "the Platform has no subnet in 'us-east-1f'"),
        ((P5, "--start", "tomorrow"), "'tomorrow' is not a date; write for example 2026-11-20"),
        ((P5, "--count", "two"), "--count: 'two' is not a number"),
        ((), "no type; name one"),
    ],
)
def test_what_ec2_never_sells_is_refused_without_a_request(purchaser: Purchaser, asked, says):
    result = purchaser.open()("offers", *asked)
    assert result.code == 2
    assert says in result.err


@pytest.mark.requirement("CB-2")
def test_more_than_256_instances_on_a_date_are_refused_with_the_date(purchaser: Purchaser):
    purchaser.open()
    for number in range(4):
        bought = purchaser("sim", "buy-elsewhere", P5, "--count", "64", "--zone", "us-east-1a", "--duration", "14d",
                        "--name", f"b{number}")  # fmt: skip
        assert bought.code == 0
    result = purchaser("offers", P5, "--count", "1", "--duration", "2d", "--start", "2026-11-20")
    assert result.code == 1
    assert (
        "256 instances in blocks on any one date, and 256 are held on 2026-11-20: 1 more are too many"
        in result.err
    )
    assert purchaser("offers", P5, "--count", "1", "--duration", "2d", "--start", "2026-12-04").code == 0


def test_too_many_requests_are_refused_with_a_hint(purchaser: Purchaser):
    result = purchaser.open()(
        "offers", P5, "--count", "1,2,3,4", "--duration", "1d,2d,3d", "--max-requests", "10"
    )
    assert result.code == 2
    assert "this search needs 12 requests (4 counts x 3 durations), more than --max-requests 10" in result.err


def test_without_offers_the_nearest_alternatives_are_shown(purchaser: Purchaser):
    """In a scarce market no zone has 16 at once on that day; some other day, or fewer, can be had."""
    purchaser.open(market="scarce", seed=3)
    result = purchaser("offers", P5, "--count", "16", "--duration", "7d", "--start", "2026-11-20",
                  "--zone", "us-east-1a", "--json")  # fmt: skip
    assert result.code == 1
    assert result.json["offers"] == []
    assert result.json["tried"][:3] == ["8d instead of 7d", "6d instead of 7d", "in us-east-1b"]
    changes = {one["change"] for one in result.json["alternatives"]}
    assert changes
    assert changes <= set(result.json["tried"])
    assert result.json["requests"] <= 60
    shown = purchaser(
        "offers", P5, "--count", "16", "--duration", "7d", "--start", "2026-11-20", "--zone", "us-east-1a"
    )
    assert "EC2 sells no such block now" in shown.out
    assert "The nearest that EC2 sells:" in shown.out


def test_alternatives_can_be_bought_by_their_id(purchaser: Purchaser):
    purchaser.open(market="scarce", seed=3)
    near = purchaser("offers", P5, "--count", "16", "--start", "2026-11-20", "--json").json["alternatives"]
    assert purchaser("buy", near[0]["id"], "--yes", "--json").json["state"] == "proposed"


def test_alternatives_stay_within_max_requests(purchaser: Purchaser):
    result = purchaser.open(market="none")("offers", P5, "--max-requests", "3", "--json")
    assert (result.json["requests"], len(result.json["tried"])) == (3, 2)
    result = purchaser("offers", P5, "--max-requests", "1")
    assert "raise --max-requests" in result.out


def test_alternatives_include_types_with_the_same_accelerator(purchaser: Purchaser):
    tried = purchaser.open(market="none")("offers", "p5e.48xlarge", "--count", "2", "--json").json["tried"]
    assert "2 x p5en.48xlarge instead of 2 x p5e.48xlarge" in tried


def test_without_an_account_offers_exits_2(purchaser: Purchaser):
    purchaser.write()
    result = purchaser("offers", P5, "--sim", "")
    assert result.code == 2
    assert "no AWS account; add --aws for the account your credentials reach, or --sim FILE" in result.err


def test_two_accounts_at_once_are_refused(purchaser: Purchaser):
    purchaser.write()
    result = purchaser("offers", P5, "--aws")
    assert result.code == 2
    assert "name two accounts; leave one out" in result.err


def test_offers_found_before_aws_fails_are_shown(purchaser: Purchaser, monkeypatch: pytest.MonkeyPatch):
    purchaser.open()
    search, asked = SimAccount.search_offers, []

    def throttled(account: SimAccount, query: OfferQuery) -> tuple[Offer, ...]:
        asked.append(query)
        if len(asked) > 2:
            raise Retryable("RequestLimitExceeded")
        return search(account, query)

    monkeypatch.setattr(SimAccount, "search_offers", throttled)
    result = purchaser("offers", P5, "--count", "1,2,3,4")
    assert result.code == 1
    assert "RequestLimitExceeded; found so far, after 3 of 4 searches" in result.err
    assert "cb-" in result.out


def test_alternatives_found_before_ctrl_c_are_shown(purchaser: Purchaser, monkeypatch: pytest.MonkeyPatch):
    purchaser.open(market="scarce", seed=3)
    search = SimAccount.search_offers
    found: list[Offer] = []

    def impatient(account: SimAccount, query: OfferQuery) -> tuple[Offer, ...]:
        if found:
            raise KeyboardInterrupt
        answer = search(account, query)
        found.extend(answer)
        return answer

    monkeypatch.setattr(SimAccount, "search_offers", impatient)
    result = purchaser("offers", P5, "--count", "16", "--duration", "7d", "--start", "2026-11-20")
    assert result.code == 130
    assert found[0].id in result.out


def test_ctrl_c_prints_the_offers_found_so_far(purchaser: Purchaser):
    purchaser.open()
    for wait_s in (1.5, 5, 15):  # the longer ones on a busy machine, where nothing was asked yet
        out, err, code = interrupted(purchaser, wait_s)
        if "cb-" in out:
            break
    assert code == 130
    assert "interrupted; found so far, after" in err
    assert "cb-" in out
    assert "Traceback" not in err


def interrupted(purchaser: Purchaser, wait_s: float) -> tuple[str, str, int]:
    """A search that would ask for a minute, interrupted after a while: what it printed, and its exit code."""
    counts = ",".join(str(count) for count in range(1, 60))
    with subprocess.Popen(
        [sys.executable, "-m", "tidemill", "offers", P5, "--count", counts],
        env={**os.environ, **purchaser.environment()}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert "SIMULATED" in process.stderr.readline()
        time.sleep(wait_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    return out, err, process.returncode


# --- several regions at once ----------------------------------------------------------------------------


def test_several_regions_are_searched_at_once_in_one_table_by_price(purchaser: Purchaser):
    regions = ("--region", "us-east-1,us-east-2", "--region", "us-west-2")
    asked = (P5, "--count", "2", "--duration", "7d", *WEEK, *regions)
    found = purchaser.open()("offers", *asked, "--json")
    assert found.code == 0, found.err
    assert (found.json["requests"], found.json["unanswered"]) == (3, {})
    assert found.json["regions"] == ["us-east-1", "us-east-2", "us-west-2"]
    offers = found.json["offers"]
    assert {one["region"] for one in offers} == {"us-east-1", "us-east-2", "us-west-2"}
    assert all(one["zone"].startswith(one["region"]) for one in offers)
    prices = [one["usd_per_gpu_h"] for one in offers]
    assert all(one <= following + 0.01 for one, following in pairwise(prices))
    shown = purchaser("offers", *asked)
    assert "region" in shown.out.splitlines()[1]
    assert "The platform runs in us-east-1: `tidemill buy` refuses the offers of us-east-2, us-west-2" in (
        " ".join(shown.out.split())
    )
    assert "region" not in purchaser("offers", P5, *WEEK).out


def test_a_region_that_is_not_enabled_is_said_and_the_others_are_shown(purchaser: Purchaser):
    told = purchaser.open()("offers", P5, *WEEK, "--all-regions")
    assert told.code == 0, told.err
    assert "ap-southeast-4 was not searched: the region ap-southeast-4 is not enabled" in told.err
    assert all(region in told.out for region in ("us-east-1", "us-east-2", "us-west-2", "ap-northeast-1"))
    as_json = purchaser("offers", P5, "--count", "1,2", *WEEK, "--all-regions", "--json").json
    assert list(as_json["unanswered"]) == ["ap-southeast-4"]
    assert as_json["requests"] == 9  # after its first no, a region is not asked again


def test_where_no_region_answers_the_search_fails(purchaser: Purchaser):
    told = purchaser.open()("offers", P5, "--region", "ap-southeast-4,eu-west-9")
    assert told.code == 3
    assert "is not enabled for the simulated account" in told.err


def test_all_regions_share_one_budget_of_requests(purchaser: Purchaser):
    told = purchaser.open()("offers", P5, "--count", "1,2", "--all-regions", "--max-requests", "9")
    assert told.code == 2
    assert "needs 10 requests (2 counts x 5 regions), more than --max-requests 9" in told.err


def test_an_offer_of_another_region_is_not_bought_here(purchaser: Purchaser):
    asked = (P5, "--count", "2", "--duration", "7d", *WEEK, "--region", "us-east-2")
    (offer, *_) = purchaser.open()("offers", *asked, "--json").json["offers"]
    told = purchaser("buy", offer["id"], "--yes")
    assert told.code == 2
    assert "is sold in us-east-2, and the platform runs in us-east-1" in told.err
    assert not purchaser.purchases()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--region", "us-east1"), "'us-east1' is not a region; did you mean 'us-east-1'?"),
        (("--region", "us-east-2", "--all-regions"), "give one or the other"),
        (("--region", "us-east-1,us-east-2", "--zone", "us-east-1a"), "--zone names no zone of us-east-2"),
    ],
)
def test_regions_that_cannot_be_searched_are_refused_before_a_request(
    purchaser: Purchaser, options: tuple[str, ...], says: str
):
    told = purchaser.open()("offers", P5, *options)
    assert (told.code, says in told.err) == (2, True), told.err


def test_zones_of_several_regions_are_each_searched_in_their_own(purchaser: Purchaser):
    told = purchaser.open()(
        "offers",
        P5,
        *WEEK,
        "--region",
        "us-east-1,us-east-2",
        "--zone",
        "us-east-1a",
        "--zone",
        "us-east-2b",
        "--json",
    )
    assert told.json["requests"] == 2
    assert {one["zone"] for one in told.json["offers"]} == {"us-east-1a", "us-east-2b"}
