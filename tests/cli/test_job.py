"""`tidemill job` where no cluster is needed: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tidemill.cli import main
from tidemill.spec import names

pytestmark = pytest.mark.requirement("PE-15")
ROOT = Path(__file__).parents[2]
DOCUMENTS = str(ROOT / "examples" / "first-block.yaml")
EXAMPLE = ROOT / "examples" / "kubernetes" / "training-job.yaml"


def render(capsys, *words, code=0):
    found = main(["job", "render", "--image", "ghcr.io/team/train:1", *words])
    said = capsys.readouterr()
    assert found == code, said.err
    return said


def test_a_few_options_are_a_whole_job(capsys):
    said = render(capsys, "-f", DOCUMENTS, "--nodes", "4", "--", "torchrun", "train.py", "--lr", "1e-4")
    job, service = yaml.safe_load_all(said.out)
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == [
        "torchrun",
        "train.py",
        "--lr",
        "1e-4",
    ]
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {names.LABEL_POOL: "train"}
    assert "namespace" not in job["metadata"], "kubectl says where"
    assert "suspend" not in job["spec"], "applied again it would stop the job"
    assert service["kind"] == "Service"


def test_the_command_needs_no_dashes_before_it(capsys):
    said = render(capsys, "-f", DOCUMENTS, "torchrun", "train.py", "--nodes", "9", "--json")
    (job,) = yaml.safe_load_all(said.out)
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command == ["torchrun", "train.py", "--nodes", "9", "--json"]


def test_a_type_is_enough_where_no_pool_can_be_read(capsys):
    (job,) = json.loads(render(capsys, "--instance-type", "p5.48xlarge", "--json").out)
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {names.LABEL_TYPE: "p5.48xlarge"}
    assert pod["tolerations"] == [{"key": names.NVIDIA_GPU, "operator": "Exists"}]


def test_resumable_has_an_interval_and_retries(capsys):
    (job,) = json.loads(render(capsys, "-f", DOCUMENTS, "--resumable", "--json").out)
    assert job["spec"]["template"]["metadata"]["annotations"] == {names.CHECKPOINT_EVERY: "30m"}
    assert job["spec"]["backoffLimit"] == 3
    (job,) = json.loads(
        render(capsys, "-f", DOCUMENTS, "--checkpoint-interval", "1h", "--retries", "0", "--json").out
    )
    assert job["spec"]["template"]["metadata"]["annotations"] == {names.CHECKPOINT_EVERY: "1h"}
    assert job["spec"]["backoffLimit"] == 0


def test_a_variable_without_a_value_is_that_of_the_shell(capsys, monkeypatch):
    monkeypatch.setenv("HF_HOME", "/models")
    (job,) = json.loads(render(capsys, "-f", DOCUMENTS, "--env", "HF_HOME", "--env", "A=b=c", "--json").out)
    told = {one["name"]: one.get("value") for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert (told["HF_HOME"], told["A"]) == ("/models", "b=c")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pool", "trian"), "there is no pool 'trian'; did you mean 'train'?"),
        (("--gpus", "16"), "write --gpus 8 --nodes 2"),
        (("--nodes", "200"), "its limits allow"),
        (
            ("--env", "NOT_SET_ANYWHERE"),
            "NOT_SET_ANYWHERE is not set in this shell; write NOT_SET_ANYWHERE=VALUE",
        ),
        (("--volume", "data"), "'data' is not CLAIM:/PATH"),
        (("--annotation", "x"), "'x' has no value; write KEY=VALUE"),
        (("--duration", "6"), "--duration: '6' is not a duration"),
        (("--duration", "6h", "--time-limit", "1h"), "ends it before it is done"),
        (("--name", "Train_1"), "lower-case letters"),
    ],
)
def test_what_cannot_be_says_what_to_write(capsys, words, said):
    assert said in render(capsys, "-f", DOCUMENTS, *words, code=2).err


def test_without_an_image_the_option_is_named(capsys):
    assert main(["job", "run", "--nodes", "2"]) == 2
    assert "Missing option '--image'" in capsys.readouterr().err


def test_without_a_cluster_and_documents_it_says_what_to_name(capsys, monkeypatch, tmp_path):
    for name in ("KUBECONFIG", "TIDEMILL_KUBECONFIG", "KUBERNETES_SERVICE_HOST", "TIDEMILL_FILES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    said = render(capsys, code=2).err
    assert "no cluster is named: give --kubeconfig FILE" in said
    assert "or name documents with -f" in said


def test_gpus_that_a_node_cannot_be_divided_by_are_noted(capsys):
    said = render(capsys, "-f", DOCUMENTS, "--gpus", "3")
    assert "p5.48xlarge has 8 GPUs: with 3 for each pod 2 stay unused" in said.err


def test_a_job_that_does_not_say_how_long_it_runs_is_told_what_may_happen(capsys):
    note = "it may start on a block that ends before it is done"
    assert note in render(capsys, "-f", DOCUMENTS).err
    for words in (("--duration", "6h"), ("--resumable",), ("--time-limit", "6h")):
        assert note not in render(capsys, "-f", DOCUMENTS, *words).err


def test_the_example_is_what_the_command_in_it_prints(capsys):
    written = EXAMPLE.read_text()
    command = next(line for line in written.splitlines() if line.startswith("#   tidemill job render "))
    words = command.removeprefix("#   tidemill job render ").split()
    monkeyed = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
    assert main(["job", "render", *monkeyed]) == 0
    body = "\n".join(line for line in written.splitlines() if not line.startswith("#"))
    assert list(yaml.safe_load_all(body)) == list(yaml.safe_load_all(capsys.readouterr().out))
