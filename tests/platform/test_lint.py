"""What the linter reads, what it says it did not read, and rules that need two files."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.deploy.helm import helm
from tidemill.cli import root
from tidemill.platform.lint import fix, lint
from tidemill.platform.lint.finding import Report
from tidemill.platform.lint.sources import read_source
from tidemill.spec.read import load
from tidemill.wording.traps import TRAPS

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAP_FILES = sorted((EXAMPLES / "traps").glob("TR-*/*.*"))


def example(name: str) -> str:
    return (EXAMPLES / "traps" / name).read_text(encoding="utf-8")


def linted(**files: str) -> Report:
    """Files by name, `__` for the dot."""
    return lint({name.replace("__", "."): text.encode() for name, text in files.items()})


def rules(report: Report) -> list[str]:
    return [finding.rule for finding in report.findings]


# --- what is read ---------------------------------------------------------------------------------


def test_a_finding_points_at_the_value_and_names_the_line_in_a_script() -> None:
    (finding,) = linted(a__yaml=example("TR-1/bad.yaml")).findings
    line = example("TR-1/bad.yaml").splitlines()[finding.line - 1]
    assert line[finding.column - 1 :].startswith("--capacity-duration-hours 4320")


def test_a_file_of_an_unknown_kind_is_said_to_be_skipped() -> None:
    report = linted(compose__yaml="services: {web: {image: x}}", a__yaml=example("TR-9/good.yaml"))
    (skipped,) = report.not_linted
    assert (skipped.file, skipped.reason) == ("compose.yaml", "skipped")
    assert report.linted == ("a.yaml",)
    assert report.complete


@pytest.mark.parametrize("text", ["a: [1", "a: b: c", "kind: Pod\n\tx: 1\n"])
def test_a_file_that_is_not_yaml_is_unreadable_and_never_fixed(text: str) -> None:
    broken = f"{example('TR-2/bad.yaml')}---\n{text}"
    report = linted(a__yaml=broken)
    assert [each.reason for each in report.not_linted] == ["unreadable"]
    assert not report.complete
    assert rules(report) == ["TR-2"]  # what stands before the error is still looked at
    assert fix({"a.yaml": broken.encode()}) == {}


def test_bytes_that_are_not_text_are_unreadable() -> None:
    report = lint({"a.yaml": b"\xff\xfe\x00"})
    assert [each.message for each in report.not_linted] == ["is not UTF-8 text"]


def test_a_document_of_ours_with_errors_is_said_to_be_unchecked_and_its_traps_are_found() -> None:
    ours = (EXAMPLES / "first-block.yaml").read_text()
    alias = next(line for line in ours.splitlines() if "alias:" in line)
    report = linted(
        a__yaml=ours.replace(alias, "    - alias: al2023@latest").replace("limits:", "wram: 1\n  limits:", 1)
    )
    assert rules(report) == ["TR-8"]
    assert [each.reason for each in report.not_linted] == ["unchecked"]
    assert "wram" in report.not_linted[0].message


@pytest.mark.parametrize(
    "path",
    sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("kubernetes/*.yaml")]),
    ids=lambda path: path.stem,
)
def test_our_own_examples_have_no_trap(path: Path) -> None:
    report = lint({str(path): path.read_bytes()})
    assert [str(finding) for finding in report.findings] == []
    assert report.complete


@pytest.mark.parametrize("path", sorted((EXAMPLES / "bad").glob("*.yaml")), ids=lambda path: path.stem)
def test_of_documents_of_ours_it_says_what_validate_says(path: Path) -> None:
    problems = [each for each in load([path]).problems if each.code in TRAPS]
    findings = lint({str(path): path.read_bytes()}).findings
    assert [(each.rule, each.line, each.column, each.message) for each in findings] == [
        (each.code, each.line, each.column, each.message) for each in problems
    ]


def test_items_of_a_list_are_looked_at_one_by_one() -> None:
    items = list(yaml.safe_load_all(example("TR-9/bad.yaml")))
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    assert rules(linted(a__yaml=text)) == ["TR-9"]


def test_json_with_tabs_is_read_and_fixed_in_place() -> None:
    text = (
        '{\n\t"apiVersion": "v1",\n\t"kind": "ConfigMap",\n\t"data": {"url":'
        ' "redis://:t@master.a.cache.amazonaws.com:6379"}\n}\n'
    )
    (finding,) = linted(a__json=text).findings
    assert (finding.line, finding.column) == (4, 19)
    assert fix({"a.json": text.encode()}) == {"a.json": text.replace("redis:", "rediss:")}


def test_a_byte_order_mark_and_windows_lines_survive_a_fix() -> None:
    text = "\ufeff" + example("TR-4/bad.yaml").replace("\n", "\r\n")
    good = "\ufeff" + example("TR-4/good.yaml").replace("\n", "\r\n")
    assert fix({"a.yaml": text.encode()}) == {"a.yaml": good}


def test_a_fix_in_json_and_in_braces_keeps_their_style() -> None:
    pool = list(yaml.safe_load_all(example("TR-4/bad.yaml")))[1]
    after = fix({"a.json": json.dumps(pool).encode()})["a.json"]
    assert json.loads(after)["spec"]["template"]["spec"]["terminationGracePeriod"] == "10m"


def test_what_an_alias_repeats_is_not_edited() -> None:
    text = example("TR-5/bad.yaml").replace("consolidateAfter: 1m", "consolidateAfter: &after 1m")
    assert rules(linted(a__yaml=text)) == ["TR-5"]
    assert fix({"a.yaml": text.encode()}) == {}


def test_nodes_by_the_hour_in_the_same_pool_are_left_to_a_person() -> None:
    text = example("TR-5/bad.yaml").replace("values: [reserved]", "values: [reserved, on-demand]")
    assert rules(linted(a__yaml=text)) == ["TR-5"]
    assert fix({"a.yaml": text.encode()}) == {}


# --- comments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("alias: al2023@latest", "alias: al2023@latest # tidemill-lint: ignore TR-8 the test fleet"),
        ("    - alias:", "    # tidemill-lint: ignore TR-9, TR-8 the test fleet\n    - alias:"),
        ("apiVersion:", "# tidemill-lint: ignore-file TR-8 the test fleet\napiVersion:"),
    ],
)
def test_a_comment_silences_a_rule_and_the_report_counts_it(old: str, new: str) -> None:
    report = linted(a__yaml=example("TR-8/bad.yaml").replace(old, new))
    assert rules(report) == []
    assert [finding.rule for finding in report.suppressed] == ["TR-8"]


def test_a_comment_for_another_rule_or_line_silences_nothing() -> None:
    text = example("TR-8/bad.yaml")
    for comment in ("ignore TR-9 x", "ignore"):
        assert rules(linted(a__yaml=text.replace("@latest", f"@latest # tidemill-lint: {comment}"))) == [
            "TR-8"
        ]
    assert rules(linted(a__yaml=text.replace("role:", "# tidemill-lint: ignore TR-8 x\n  role:"))) == ["TR-8"]


def test_a_silenced_finding_is_not_fixed() -> None:
    text = example("TR-18/bad.yaml").replace("cpu: 400 #", "cpu: 400 # tidemill-lint: ignore TR-18 meant,")
    assert fix({"a.yaml": text.encode()}) == {}


def test_only_the_rules_that_are_asked_for_are_reported_and_fixed() -> None:
    both = example("TR-4/bad.yaml").replace("consolidateAfter: Never", "consolidateAfter: 1m")
    files = {"a.yaml": both.encode()}
    assert rules(lint(files)) == ["TR-4", "TR-5"]
    assert rules(lint(files, rules={"TR-5"})) == ["TR-5"]
    assert rules(lint(files, ignore={"TR-5"})) == ["TR-4"]
    assert "terminationGracePeriod" not in fix(files, rules={"TR-5"})["a.yaml"]
    assert rules(lint({"a.yaml": fix(files)["a.yaml"].encode()})) == []


# --- rules across files ---------------------------------------------------------------------------

EFA_POD = """
apiVersion: v1
kind: Pod
metadata: {name: nccl}
spec:
  containers:
    - name: nccl
      resources: {limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 32}}
"""
GROUP = """
Resources:
  Nodes:
    Type: AWS::EC2::SecurityGroup
    Properties:
      GroupDescription: nodes
      Tags: [{Key: karpenter.sh/discovery, Value: ml}]
"""
NODE_CLASS = example("TR-8/good.yaml")


@pytest.mark.requirement("TR-13")
def test_an_efa_pod_and_its_security_group_are_in_different_files() -> None:
    (finding,) = linted(pod__yaml=EFA_POD, group__yaml=GROUP, karpenter__yaml=NODE_CLASS).findings
    assert (finding.rule, finding.file) == ("TR-13", "karpenter.yaml")
    assert finding.elsewhere == ("pod.yaml:6:3",)
    assert rules(linted(pod__yaml=EFA_POD, karpenter__yaml=NODE_CLASS)) == []  # the group may allow it
    assert rules(linted(group__yaml=GROUP, karpenter__yaml=NODE_CLASS)) == []  # nobody uses EFA


@pytest.mark.requirement("TR-13")
def test_rules_of_a_security_group_may_be_in_another_stack() -> None:
    rules_elsewhere = """
Resources:
  In: {Type: "AWS::EC2::SecurityGroupIngress", Properties: {GroupId: X, IpProtocol: -1, SourceSecurityGroupId: X}}
  Out: {Type: "AWS::EC2::SecurityGroupEgress", Properties: {GroupId: X, IpProtocol: -1, DestinationSecurityGroupId: X}}
""".replace("X", "!ImportValue nodes")
    exported = GROUP + "Outputs: {G: {Value: !Ref Nodes, Export: {Name: nodes}}}\n"
    files = {"pod__yaml": EFA_POD, "karpenter__yaml": NODE_CLASS, "rules__yaml": rules_elsewhere}
    assert rules(linted(**files, group__yaml=exported)) == []
    assert rules(linted(**files, group__yaml=GROUP)) == ["TR-13"]


@pytest.mark.requirement("TR-4")
def test_what_holds_a_drain_back_is_named_with_the_pool() -> None:
    pod = EFA_POD.replace("{name: nccl}", '{name: nccl, annotations: {karpenter.sh/do-not-disrupt: "true"}}')
    budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nspec: {maxUnavailable: 0}\n"
    (finding,) = linted(a__yaml=example("TR-4/bad.yaml"), b__yaml=pod, c__yaml=budget).findings
    assert finding.rule == "TR-4"
    assert [place.partition(":")[0] for place in finding.elsewhere] == ["b.yaml", "c.yaml"]


@pytest.mark.requirement("TR-4", "TR-5")
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("capacity-block", "default", []),  # an on-demand reservation does not end
        ("values: [reserved]", "values: [on-demand]", []),
        ("operator: In\n          values: [capacity-block]", "operator: Exists", ["TR-4"]),
    ],
)
def test_a_pool_that_is_not_of_blocks_may_drain_as_it_likes(old: str, new: str, found: list[str]) -> None:
    text = example("TR-4/bad.yaml")
    assert old in text
    assert rules(linted(a__yaml=text.replace(old, new))) == found


@pytest.mark.requirement("TR-15")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Chart__yaml", "name: deps\nversion: 1.0.0\ndependencies: [{name: karpenter, version: VERSION}]\n"),
        ("values__yaml", "settings: {clusterName: ml}\ncontroller: {image: {tag: VERSION}}\n"),
        (
            "deploy__yaml",
            "kind: Pod\napiVersion: v1\nspec: {containers: [{image: 'a/karpenter/controller:VERSION@sha256:0'}]}\n",
        ),
    ],
)
def test_the_version_of_karpenter_is_found_wherever_it_is_installed(name: str, text: str) -> None:
    pools = example("TR-15/good.yaml").partition("---\n")[2]
    assert rules(linted(**{"a__yaml": pools, name: text.replace("VERSION", "1.7.2")})) == ["TR-15"]
    assert rules(linted(**{"a__yaml": pools, name: text.replace("VERSION", "1.8.0")})) == []
    assert rules(linted(a__yaml=pools)) == []


@pytest.mark.requirement("TR-3")
def test_a_node_class_of_auto_mode_and_a_requirement_may_pin_too() -> None:
    auto = example("TR-3/bad.yaml").replace("karpenter.k8s.aws/v1", "eks.amazonaws.com/v1")
    assert rules(linted(a__yaml=auto.replace("kind: EC2NodeClass", "kind: NodeClass"))) == ["TR-3"]
    pinned = example("TR-9/good.yaml").replace(
        "karpenter.k8s.aws/capacity-reservation-type", "karpenter.k8s.aws/capacity-reservation-id"
    )
    assert rules(linted(a__yaml=pinned.replace("[capacity-block]", "[cr-0123456789abcdef0]"))) == ["TR-3"]


PLUGIN_VALUES = "migStrategy: none\n"


@pytest.mark.requirement("TR-6")
@pytest.mark.parametrize(
    ("version", "mofed", "found"),
    [
        ("0.18.2", "", []),
        ("0.19.0", "", ["TR-6"]),
        ("0.19.2", "", ["TR-6"]),
        ("0.19.3", "", []),
        ("0.20.0", "", []),
        ("0.19.0", "mofedEnabled: false\n", []),
        ("0.20.0", "mofedEnabled: true\n", ["TR-6"]),
        ("0.19.0", "devicePlugin: {enabled: false}\n", []),
    ],
)
def test_the_version_of_a_device_plugin_may_be_in_a_chart_beside_its_values(
    version: str, mofed: str, found: list[str]
) -> None:
    chart = (
        f"name: deps\nversion: 1.0.0\ndependencies: [{{name: nvidia-device-plugin, version: {version}}}]\n"
    )
    files = {"Chart__yaml": chart, "values__yaml": PLUGIN_VALUES + mofed}
    assert rules(linted(**files, pod__yaml=EFA_POD)) == found
    assert rules(linted(**files)) == []  # no EFA anywhere


@pytest.mark.requirement("TR-6")
def test_the_gpu_operator_and_a_daemon_set_bring_the_same_plugin() -> None:
    operator = "driver: {enabled: false}\ndevicePlugin: {version: v0.19.1ENV}\n"
    assert rules(linted(values__yaml=operator.replace("ENV", ""), pod__yaml=EFA_POD)) == ["TR-6"]
    off = ", env: [{name: MOFED_ENABLED, value: 'false'}]"
    assert rules(linted(values__yaml=operator.replace("ENV", off), pod__yaml=EFA_POD)) == []
    plugin = EFA_POD.replace(
        "- name: nccl", "- image: nvcr.io/nvidia/k8s-device-plugin:v0.19.0\n      name: nccl"
    )
    assert rules(linted(pod__yaml=plugin)) == ["TR-6"]


@pytest.mark.requirement("TR-7")
@pytest.mark.parametrize(("image", "found"), [("bottlerocket@v1.52.0", ["TR-7"]), ("al2023@v20261101", [])])
def test_a_device_plugin_and_the_nodes_of_a_pool_of_ours(image: str, found: list[str]) -> None:
    ours = (EXAMPLES / "first-block.yaml").read_text()
    alias = next(line for line in ours.splitlines() if "alias:" in line)
    ours = ours.replace(alias, f"    - alias: {image}")
    assert rules(linted(a__yaml=ours, values__yaml=PLUGIN_VALUES)) == found


@pytest.mark.requirement("TR-7")
def test_auto_mode_brings_a_device_plugin_and_a_selector_keeps_the_other_away() -> None:
    auto = (
        example("TR-9/good.yaml")
        .replace("karpenter.k8s.aws/v1\nkind: EC2NodeClass", "eks.amazonaws.com/v1\nkind: NodeClass")
        .replace("kind: EC2NodeClass", "kind: NodeClass")
        .replace("group: karpenter.k8s.aws", "group: eks.amazonaws.com")
    )
    assert rules(linted(a__yaml=auto, values__yaml=PLUGIN_VALUES)) == ["TR-7"]
    off = PLUGIN_VALUES + "nodeSelector: {gpu-plugin: 'yes'}\n"
    assert rules(linted(a__yaml=auto, values__yaml=off)) == []


@pytest.mark.requirement("TR-12")
def test_a_chart_that_keeps_a_zero_is_no_trap_for_its_values() -> None:
    values, good, bad = (example(f"TR-12/{name}.yaml") for name in ("bad", "good-template", "bad-template"))
    assert rules(linted(values__yaml=values, sts__yaml=good)) == []
    assert rules(linted(values__yaml=values, sts__yaml=bad)) == ["TR-12", "TR-12"]
    left_out = bad.replace("  replicas:", "  {{- if $pool.replicas }}\n  replicas:").replace(
        " | default 1", ""
    )
    assert rules(linted(sts__yaml=left_out)) == ["TR-12"]
    assert (
        rules(
            linted(
                sts__yaml=bad.replace("nvidia.com/gpu", "cpu")
                .replace("computePools", "x")
                .replace("gpusPerReplica", "x")
            )
        )
        == []
    )


@pytest.mark.requirement("TR-12")
@pytest.mark.parametrize(("template", "rendered"), [("bad", [1, 1, 3]), ("good", [0, 1, 3])])
def test_helm_itself_renders_what_the_rule_says(template: str, rendered: list[int], tmp_path: Path) -> None:
    """0, not given, and 3 replicas."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "pools.yaml").write_text(example(f"TR-12/{template}-template.yaml"))
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: engine\nversion: 0.1.0\n")
    pools = [{"name": "a", "replicas": 0}, {"name": "b"}, {"name": "c", "replicas": 3}]
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"harmony": {"computePools": pools}}))
    objects = [each for each in yaml.safe_load_all(helm("template", "engine", str(tmp_path))) if each]
    assert [each["spec"]["replicas"] for each in objects] == rendered


# --- what `tidemill render` makes -----------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("cloudformation", "groups.yaml", "--pool", "train", "--type", "p5.48xlarge", "--zone", "us-east-1a"),
        ("cloudformation", "groups.yaml", "--pool", "serve", "--type", "p5.48xlarge", "--zone", "us-east-1a", "--json"),
        ("karpenter", "karpenter.yaml", "--pool", "serve"),
        ("karpenter", "karpenter.yaml", "--pool", "train"),
        ("crds",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_tidemill_renders_has_no_trap(arguments: tuple[str, ...]) -> None:
    given = [str(EXAMPLES / each) if each.endswith(".yaml") else each for each in arguments]
    result = CliRunner().invoke(root, ["render", *given])
    assert result.exit_code == 0, result.output
    report = linted(a__yaml=result.stdout)
    assert rules(report) == []
    assert report.not_linted == ()


# --- TR-2 -----------------------------------------------------------------------------------------

TLS_CACHE = """
Resources:
  Cache:
    Type: AWS::ElastiCache::ReplicationGroup
    Properties: {TransitEncryptionEnabled: true}
  Url:
    Type: AWS::SecretsManager::Secret
    Properties:
      SecretString: !Sub "redis://:${Token}@${Cache.PrimaryEndPoint.Address}:6379"
"""


@pytest.mark.requirement("TR-2")
@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("redis://:token@master.a.use1.cache.amazonaws.com:6379", ["TR-2"]),
        ("redis://:AUTH_TOKEN@ELASTICACHE_ENDPOINT:6379", ["TR-2"]),
        ("redis://a-x.serverless.use1.cache.amazonaws.com:6379", ["TR-2"]),
        ("rediss://:token@master.a.use1.cache.amazonaws.com:6379", []),
        ("redis://a.x.0001.use1.cache.amazonaws.com:6379", []),  # may be without encryption
        ("redis://:token@redis.engine.svc:6379", []),
        ("redis://redis:6379", []),
    ],
)
def test_only_a_redis_that_surely_has_tls_is_reported(url: str, found: list[str]) -> None:
    secret = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: x}}\nstringData: {{url: '{url}'}}\n"
    assert rules(linted(a__yaml=secret)) == found


@pytest.mark.requirement("TR-2")
def test_a_stack_with_tls_makes_every_template_of_its_url_a_trap() -> None:
    (finding,) = linted(a__yaml=TLS_CACHE).findings
    assert (finding.rule, finding.line) == ("TR-2", 9)
    external = """
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: redis}
spec: {target: {template: {data: {redisUrl: "redis://:{{ .token }}@{{ .endpoint }}:6379"}}}}
"""
    both = {"a.yaml": TLS_CACHE.encode(), "b.yaml": external.encode()}
    assert rules(lint(both)) == ["TR-2", "TR-2"]
    assert {text.count("rediss://") for text in fix(both).values()} == {1}
    assert rules(linted(b__yaml=external)) == []
    without_token = TLS_CACHE.replace(":${Token}@", "")
    assert rules(linted(a__yaml=without_token)) == ["TR-2"]
    either = without_token.replace("true}", "true, TransitEncryptionMode: preferred}")
    assert rules(linted(a__yaml=either)) == []


@pytest.mark.requirement("TR-2")
@pytest.mark.parametrize(
    ("redis", "found"), [("{tls: true}", ["TR-2"]), ("{}", ["TR-2"]), ("{tls: false}", [])]
)
def test_a_platform_says_whether_its_redis_has_tls(redis: str, found: list[str]) -> None:
    ours = (EXAMPLES / "first-block.yaml").read_text().replace("  region:", f"  redis: {redis}\n  region:", 1)
    values = 'redis: {external: {url: "redis://:${TOKEN}@${REDIS_HOST}:6379"}}\n'
    assert rules(linted(a__yaml=ours, values__yaml=values)) == found


@pytest.mark.requirement("TR-2")
def test_base64_is_looked_into_and_not_rewritten() -> None:
    url = b64encode(b"redis://:planted-token@master.a.cache.amazonaws.com:6379").decode()
    secret = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: x}}\ndata: {{url: {url}}}\n"
    report = linted(a__yaml=secret)
    assert rules(report) == ["TR-2"]
    assert "planted-token" not in str(report.findings)
    assert fix({"a.yaml": secret.encode()}) == {}


# --- CloudFormation and workloads -----------------------------------------------------------------


@pytest.mark.requirement("TR-10")
def test_an_auto_scaling_group_on_a_block_has_subnets_of_one_zone() -> None:
    stack = """
Resources:
  A: {Type: "AWS::EC2::Subnet", Properties: {AvailabilityZone: !Select [0, !GetAZs ""]}}
  B: {Type: "AWS::EC2::Subnet", Properties: {AvailabilityZone: !Select [N, !GetAZs ""]}}
  T:
    Type: AWS::EC2::LaunchTemplate
    Properties: {LaunchTemplateData: {InstanceMarketOptions: {MarketType: MARKET}}}
  G:
    Type: AWS::AutoScaling::AutoScalingGroup
    Properties:
      LaunchTemplate: {LaunchTemplateId: !Ref T, Version: 1}
      VPCZoneIdentifier: [!Ref A, !Ref B]
"""
    assert rules(linted(a__yaml=stack.replace("N,", "1,").replace("MARKET", "capacity-block"))) == ["TR-10"]
    assert rules(linted(a__yaml=stack.replace("N,", "0,").replace("MARKET", "capacity-block"))) == []
    assert rules(linted(a__yaml=stack.replace("N,", "1,").replace("MARKET", "spot"))) == []


@pytest.mark.requirement("TR-14")
def test_a_managed_node_group_of_ultraservers_is_scaled_down_too_late() -> None:
    stack = example("TR-10/good.json").replace(
        '"LaunchTemplate": {\n          "Id"',
        '"InstanceTypes": ["TYPE"], "LaunchTemplate": {\n          "Id"',
    )
    assert rules(linted(a__json=stack.replace("TYPE", "p6e-gb200.36xlarge"))) == ["TR-14"]
    assert rules(linted(a__json=stack.replace("TYPE", "p5.48xlarge"))) == []


@pytest.mark.requirement("TR-8")
@pytest.mark.parametrize(("alias", "found"), [("al2023", ["TR-8"]), ("windows2022@latest", [])])
def test_an_alias_is_only_reported_where_it_can_be_pinned(alias: str, found: list[str]) -> None:
    assert rules(linted(a__yaml=NODE_CLASS.replace("al2023@v20261101", alias))) == found


@pytest.mark.requirement("TR-8")
def test_an_image_that_systems_manager_recommends_changes_by_itself() -> None:
    stack = """
Parameters: {Image: {Type: "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", Default: /aws/eks/VERSION/image_id}}
Resources:
  T:
    Type: AWS::EC2::LaunchTemplate
    Properties: {LaunchTemplateData: {ImageId: !Ref Image, InstanceMarketOptions: {MarketType: capacity-block}}}
"""
    assert rules(linted(a__yaml=stack.replace("VERSION", "recommended"))) == ["TR-8"]
    assert rules(linted(a__yaml=stack.replace("VERSION", "v20261101"))) == []


@pytest.mark.requirement("TR-16")
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", ["TR-16"]),
        ("parallelism: 4", "parallelism: 1", []),
        ("nvidia.com/gpu: 8", "nvidia.com/gpu: 4", []),  # not a whole node
        ("p5.48xlarge", "g6.4xlarge", []),  # a type without EFA
        ("completionMode: Indexed", "completionMode: NonIndexed", []),  # a queue of strangers
    ],
)
def test_only_whole_nodes_that_work_together_need_efa(old: str, new: str, found: list[str]) -> None:
    assert (
        rules(
            linted(a__yaml=example("TR-16/bad.yaml").replace(old, new) if old else example("TR-16/bad.yaml"))
        )
        == found
    )


@pytest.mark.requirement("TR-16")
@pytest.mark.parametrize(
    ("pool", "found"),
    [
        ("{name: a, replicas: 2, gpusPerReplica: 8, capabilities: JOB}", ["TR-16"]),
        ("{name: a, replicas: 1, gpusPerReplica: 16}", ["TR-16"]),
        ("{name: a, replicas: 4, gpusPerReplica: 8, capabilities: INFERENCE}", []),
        ("{name: a, replicas: 1, gpusPerReplica: 8, capabilities: JOB}", []),
        (
            "{name: a, replicas: 1, gpusPerReplica: 16, resources: {limits: {vpc.amazonaws.com/efa: 32}}}",
            [],
        ),
    ],
)
def test_an_engine_pool_that_spans_nodes_needs_efa(pool: str, found: list[str]) -> None:
    assert rules(linted(values__yaml=f"harmony:\n  computePools:\n    - {pool}\n")) == found


@pytest.mark.requirement("TR-3")
def test_pods_and_values_that_name_a_reservation_are_reported() -> None:
    selector = "nodeSelector: {karpenter.k8s.aws/capacity-reservation-id: cr-0123456789abcdef0}"
    values = f"harmony:\n  computePools:\n    - {{name: a, replicas: 1, {selector}}}\n"
    assert rules(linted(values__yaml=values)) == ["TR-3"]
    assert rules(linted(pod__yaml=EFA_POD.replace("spec:", f"spec:\n  {selector}"))) == ["TR-3"]


@pytest.mark.requirement("TR-17")
@pytest.mark.parametrize(
    ("volume", "found"),
    [
        ("hostPath: {path: /mnt/k8s-disks/0}", ["TR-17"]),
        ("hostPath: {path: /fsx}", []),  # a file system that the node mounts
        ("persistentVolumeClaim: {claimName: efs}", []),
    ],
)
def test_checkpoints_on_a_disk_of_the_node_are_reported(volume: str, found: list[str]) -> None:
    assert rules(linted(a__yaml=example("TR-17/bad.yaml").replace("emptyDir: {}", volume))) == found


# --- anything -------------------------------------------------------------------------------------

patiently = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5000), st.floats(allow_nan=False), st.text(max_size=8),
    st.sampled_from(["cr-0", "redis://a", "10m", "Never", "In", "reserved", "{{ .x }}", "--capacity-duration-hours"]),
)  # fmt: skip
DOCUMENTS = [
    located.data for path in TRAP_FILES for _, located in read_source(str(path), path.read_bytes()).objects
]


def spoiled(value: object, draw: Callable[[Any], Any]) -> object:
    """The same with parts left out, or replaced by something else."""
    if draw(st.integers(0, 12)) == 0:
        return draw(
            SCALARS
            | st.lists(SCALARS, max_size=2)
            | st.dictionaries(st.text(max_size=4), SCALARS, max_size=2)
        )
    if isinstance(value, dict):
        return {key: spoiled(each, draw) for key, each in value.items() if draw(st.integers(0, 15))}
    if isinstance(value, list):
        return [spoiled(each, draw) for each in value]
    return value


@given(st.data())
@settings(patiently, max_examples=150)
def test_no_spoiled_manifest_makes_it_raise_and_a_fix_of_one_can_be_read(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(DOCUMENTS), min_size=1, max_size=3))
    names = ("values.yaml", "a.yaml", "Chart.yaml")
    files = {
        name: yaml.safe_dump(spoiled(each, data.draw)).encode()
        for name, each in zip(names, chosen, strict=False)
    }
    report = lint(files)
    for finding in report.findings:
        assert finding.line >= 1
        assert finding.column >= 1
    for after in fix(files).values():
        list(yaml.safe_load_all(after))


@given(
    st.text(max_size=80)
    | st.lists(
        st.sampled_from(["a", ":", " ", "\n", "-", "{{", "}}", "!Ref", "&x", "*x", "[", "<<", "'", "\t"]),
        max_size=30,
    ).map("".join)
)
@settings(patiently, max_examples=200)
def test_no_text_makes_it_raise(text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")
    for name in ("a.yaml", "values.yaml", "a.json"):
        lint({name: content})
        fix({name: content})
