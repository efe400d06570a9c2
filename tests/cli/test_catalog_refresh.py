"""`tidemill catalog refresh`: every command uses its data if it is complete and newer than the shipped catalog."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.aws.wired import Wired
from tests.aws.wired import wired as open_wired
from tidemill.aws.session import Aws
from tidemill.catalog import load, shipped_types
from tidemill.catalog.refreshed import Refreshed, TypeFacts, read, written
from tidemill.cli import main, region_catalog
from tidemill.model.errors import SpecError

TODAY = date(2026, 11, 15)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("TIDEMILL_CATALOG", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "tidemill" / "catalog-us-east-1.json"


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch):
    with open_wired(monkeypatch) as there:
        yield there


def refreshed() -> Refreshed:
    """As AWS would tell it: what ships, and one type more."""
    one_more = next(one for one in shipped_types() if one["name"] == "g6.xlarge") | {"name": "g4dn.xlarge"}
    types = [
        TypeFacts(**{key: value for key, value in one.items() if key != "ultraserver"})
        for one in (*shipped_types(), one_more)
    ]
    return Refreshed(region="us-east-1", as_of=TODAY, source="EC2 DescribeInstanceTypes", types=types)


def changed(cache: Path, **types: int) -> None:
    """The kept catalog, with other numbers of EFA interfaces than AWS has."""
    data = json.loads(cache.read_text())
    for one in data["types"]:
        one["efa"] = types.get(one["name"].replace(".", "_"), one["efa"])
    cache.write_text(json.dumps(data))


def test_refresh_stores_the_answer_reports_it_and_only_reads(
    wired: Wired, cache: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    called: list[str] = []
    call = Aws.call

    def noted(self: Aws, *words: Any, **given: Any) -> Any:
        called.append(words[1])
        return call(self, *words, **given)

    monkeypatch.setattr(Aws, "call", noted)
    fewer = {name: kind for name, kind in load().types.items() if name != "p6e-gb200.36xlarge"}
    monkeypatch.setattr(wired.account.cloud, "catalog", replace(load(), types=fewer))
    assert main(["catalog", "refresh", "--region", "us-east-1"]) == 0
    out = capsys.readouterr().out
    assert str(cache) in out
    assert "prices of Capacity Blocks stay as shipped" in out
    assert "not in this region, so as shipped: p6e-gb200.36xlarge" in out
    found = read(cache.read_bytes(), "us-east-1")
    assert "p5.48xlarge" in {one.name for one in found.types}
    shipped = {
        name: usd for one in load().price_lists if one.kind == "on-demand" for name, usd in one.usd_h.items()
    }
    assert found.on_demand is not None
    assert found.on_demand.usd_h == shipped, "the simulated AWS sells at the shipped prices"
    assert not list(cache.parent.glob(".*")), "nothing half-written stays behind"
    assert set(called) == {"DescribeInstanceTypes", "GetProducts"}


def test_without_the_price_list_shipped_prices_stay_with_the_reason(wired: Wired, cache: Path, capsys):
    wired.fault(
        "error", action="GetProducts", code="AccessDeniedException", status=403, message="no", times=9
    )
    assert main(["catalog", "refresh", "--region", "us-east-1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "pricing:GetProducts" in told["prices_not_read"]
    assert "`tidemill iam observer`" in told["prices_not_read"]
    assert read(cache.read_bytes(), "us-east-1").on_demand is None


def test_without_permission_for_types_nothing_is_stored(wired: Wired, cache: Path, capsys):
    wired.fault(
        "error", action="DescribeInstanceTypes", code="UnauthorizedOperation", status=403, message="no", times=9
    )  # fmt: skip
    assert main(["catalog", "refresh", "--region", "us-east-1"]) == 3
    assert "ec2:DescribeInstanceTypes" in capsys.readouterr().err
    assert not cache.exists()


def test_the_region_comes_from_the_environment_or_is_required(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setenv("AWS_CONFIG_FILE", str(cache.parent / "none"))
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    assert main(["catalog", "refresh"]) == 2
    assert "no region; add --region NAME" in capsys.readouterr().err
    assert main(["catalog", "refresh", "--profile", "nobody"]) == 3
    assert "nobody" in capsys.readouterr().err


def test_a_cache_folder_that_cannot_be_written_exits_2(cache: Path):
    cache.parent.write_text("in the way")
    with pytest.raises(SpecError, match=f"cannot write {cache}"):
        region_catalog.save(refreshed())


# --- being used ---------------------------------------------------------------------------------------


@pytest.fixture
def kept(cache: Path) -> Path:
    region_catalog.save(refreshed())
    return cache


def test_catalog_region_shows_date_and_source(kept: Path, capsys):
    changed(kept, p5_48xlarge=30)
    assert main(["catalog", "--region", "us-east-1", "--type", "p5.48xlarge"]) == 0
    shown = capsys.readouterr().out
    (row,) = (line for line in shown.splitlines() if "p5.48xlarge" in line)
    assert " 30 " in row
    assert f"types of {TODAY} in us-east-1, refreshed: EC2 DescribeInstanceTypes" in shown
    assert main(["catalog"]) == 0
    assert "refreshed for us-east-1; show it with --region" in capsys.readouterr().out


def test_documents_use_the_refreshed_catalog_of_their_region(kept: Path, capsys, tmp_path: Path):
    documents = tmp_path / "mill.yaml"
    text = """
apiVersion: tidemill.dev/v1alpha1
kind: Platform
metadata: {name: mill}
spec: {region: us-east-1, deployment: mill, cluster: {name: mill}, subnets: {us-east-1a: [subnet-1]}}
---
apiVersion: tidemill.dev/v1alpha1
kind: NodeClass
metadata: {name: gpu}
spec: {role: node, amiSelectorTerms: [{alias: al2023@v20260714}]}
---
apiVersion: tidemill.dev/v1alpha1
kind: ComputePool
metadata: {name: small}
spec: {nodeClassName: gpu, requirements: {instanceTypes: [g4dn.xlarge]}, limits: {nodes: 2}}
"""
    documents.write_text(text)
    assert main(["validate", str(documents)]) == 0, capsys.readouterr().out
    documents.write_text(text.replace("us-east-1", "eu-west-1"))
    assert main(["validate", str(documents)]) == 2
    assert "g4dn.xlarge" in capsys.readouterr().out


def test_catalog_shipped_ignores_refreshed_data(kept: Path, monkeypatch: pytest.MonkeyPatch):
    assert region_catalog.catalog_of("us-east-1") is not load()
    monkeypatch.setenv("TIDEMILL_CATALOG", "shipped")
    assert region_catalog.catalog_of("us-east-1") is load()


def test_the_same_catalog_is_the_same_object(kept: Path):
    assert region_catalog.catalog_of("us-east-1") is region_catalog.catalog_of("us-east-1")


def test_an_older_refreshed_catalog_is_ignored(kept: Path, capsys):
    old = read(kept.read_bytes(), "us-east-1").model_dump() | {"as_of": "2026-01-01"}
    kept.write_text(written(Refreshed.model_validate(old, strict=False)))
    assert region_catalog.catalog_of("us-east-1") is load()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ('{"version": 9}', "a newer version of Tidemill wrote it"),
        ("{}", "region: Field required"),
    ],
)
def test_a_broken_or_newer_file_is_named_once_and_ignored(cache: Path, capsys, text: str, why: str):
    cache.parent.mkdir()
    cache.write_text(text)
    assert region_catalog.catalog_of("us-east-1") is load()
    assert region_catalog.catalog_of("us-east-1") is load()
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{cache} cannot be used ({why}), so the shipped catalog is used" in line
    assert "write it again: tidemill catalog refresh --region us-east-1" in line


@pytest.mark.parametrize("region", ["", "../../etc/passwd", "US", "a" * 99])
def test_a_wrong_region_name_reads_no_file(cache: Path, region: str):
    assert region_catalog.catalog_of(region) is load()
