"""Writes what the chart must not say by itself: CRDs, roles, policies, the deadline agent.

`python -m deploy.generate` writes `deploy/chart/generated`; a test compares it with the code it comes from. Templates
include these files; what differs between installations is in them as Helm writes it ({{ .Release.Namespace }}).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tidemill.kube.admission.policy import policy_objects
from tidemill.kube.admission.webhook import webhook_object
from tidemill.kube.rbac import Role, manifests
from tidemill.render.kubernetes_yaml import yaml_text
from tidemill.render.node_agent import node_agent_objects
from tidemill.spec.crds import definitions

FOLDER = Path(__file__).parent / "chart" / "generated"
NAMESPACE = "{{ .Release.Namespace }}"
IMAGE = '{{ include "tidemill.image" . }}'
CA = "{{ .Webhook.ca }}"  # one authority signs; a template that made it twice would make two
WEBHOOK = "tidemill-webhook"
# Uninstalling the chart must not delete the documents, and with them the record of every block.
_KEEP = {"helm.sh/resource-policy": "keep"}
# Templates write these, with the annotations and pull secrets of the values.
# The rights to release exist while the chart is being removed, not before.
_ON_REMOVAL = {
    "helm.sh/hook": "pre-delete",
    "helm.sh/hook-weight": "-10",
    "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
}
_ROLES = (Role.CONTROLLER, Role.DOCUMENTS, Role.KARPENTER, Role.PURCHASER, Role.USERS)
_WRITTEN_BY_TEMPLATES = ("ServiceAccount", "Namespace")


def files() -> dict[str, str]:
    """Contents by name."""
    service = {"service": {"namespace": NAMESPACE, "name": WEBHOOK, "port": 443}}
    webhook = webhook_object(service, excluded=(NAMESPACE,))
    for each in webhook["webhooks"]:
        each["clientConfig"]["caBundle"] = CA
    made: dict[str, Iterable[Mapping[str, Any]]] = {
        "crds.yaml": (_annotated(each, _KEEP) for each in definitions()),
        "policies.yaml": policy_objects((NAMESPACE,)),
        "webhook.yaml": [webhook],
        "node-agent.yaml": node_agent_objects(IMAGE, namespace=NAMESPACE),
        "node-agent-without-boot-file.yaml": node_agent_objects(IMAGE, namespace=NAMESPACE, boot_file=False),
        **{f"rbac-{role.value}.yaml": manifests(role, NAMESPACE) for role in _ROLES},
        "rbac-release.yaml": (_annotated(each, _ON_REMOVAL) for each in manifests(Role.RELEASE, NAMESPACE)),
    }  # fmt: skip
    return {
        name: "# Made by `python -m deploy.generate`; changes here are lost.\n" + _text(objects) + "\n"
        for name, objects in made.items()
    }


def _annotated(each: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    metadata = dict(each["metadata"])
    metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
    return {**each, "metadata": metadata}


def _text(objects: Iterable[Mapping[str, Any]]) -> str:
    return "---\n" + yaml_text(
        each for each in objects if each["kind"] not in _WRITTEN_BY_TEMPLATES
    ).removeprefix("---\n")


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = files()
    for old in FOLDER.iterdir():
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
