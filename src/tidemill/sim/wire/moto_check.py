"""Checks that moto has the version and the names that the wire simulator relies on.

moto says how an AWS request is read and an answer written, and keeps what the account has no part in. Most of that is
no public interface of moto's, so its version is pinned, and every name used is looked up before a server starts.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

from tidemill.model.errors import SpecError

MOTO = "5.2.5"
_INSTALL = "pip install 'tidemill[wire]'"

# Module -> names that must be there; `Class.method` for members.
_NEEDED: dict[str, tuple[str, ...]] = {
    "moto.cloudformation.exceptions": ("ValidationError",),
    "moto.cloudformation.models": (
        "CloudFormationBackend.create_stack",
        "CloudFormationBackend.update_stack",
        "CloudFormationBackend.create_change_set",
    ),
    "moto.iam.models": ("IAMBackend.create_role", "IAMBackend.get_instance_profiles"),
    "moto.cloudformation.parsing": ("get_model_map",),
    "moto.core.exceptions": ("ServiceException",),
    "moto.ec2.exceptions": ("InvalidSubnetIdError",),
    "moto.eks.models": ("EKSBackend.create_cluster",),
    "moto.ec2.models.instance_types": ("INSTANCE_TYPES",),
    "moto.ec2.models.launch_templates": (
        "LaunchTemplate.get_version",
        "LaunchTemplate.latest_version_number",
    ),
    "moto.core.request": ("Request", "determine_request_protocol"),
    "moto.core.routing": ("get_service_router",),
    "moto.core.parse": ("PROTOCOL_PARSERS", "RequestParserError"),
    "moto.core.serialize": ("get_serializer_class", "SerializationContext", "XFormedAttributePicker"),
    "moto.core.utils": ("get_service_model",),
    "moto.core.base_backend": ("BackendDict.reset",),
    "moto.core.model_instances": ("reset_model_data",),
    "moto.backends": ("get_backend",),
    "moto.settings": ("ec2_load_default_amis",),
    "moto.moto_api._internal": ("mock_random",),
    "moto.moto_server.werkzeug_app": (
        "DomainDispatcherApplication.get_application",
        "MotoRequestHandler",
        "create_backend_app",
    ),
    "moto.ec2.models.subnets": ("random_subnet_id",),
    "moto.events.models": ("EventsBackend.describe_event_bus", "EventPattern.matches_event"),
    "moto.sqs.models": ("SQSBackend.send_message",),
    "moto.sns.models": ("Topic.publish",),
    "moto.ec2.models": (
        "EC2Backend.authorize_security_group_egress",
        "EC2Backend.create_vpc",
        "EC2Backend.create_subnet",
        "EC2Backend.get_launch_template",
        "EC2Backend.get_launch_template_by_name",
        "EC2Backend.get_subnet",
        "EC2Backend.describe_subnets",
        "EC2Backend.get_default_vpc",
        "EC2Backend.describe_security_groups",
        "EC2Backend.describe_availability_zones",
        "EC2Backend.register_image",
        "EC2Backend.do_resources_exist",
        "EC2Backend.create_tags",
        "EC2Backend.delete_tags",
        "EC2Backend.describe_tags",
    ),
}


def check() -> None:
    """SpecError: moto is not there, is another version, or lacks something; each with what to do."""
    try:
        version = importlib.metadata.version("moto")
    except importlib.metadata.PackageNotFoundError:
        raise SpecError(f"the AWS wire simulator needs moto {MOTO}: {_INSTALL}") from None
    if version != MOTO:
        raise SpecError(f"the AWS wire simulator needs moto {MOTO}, and {version} is installed: {_INSTALL}")
    missing = [
        f"{module}.{name}" for module, names in _NEEDED.items() for name in names if not _has(module, name)
    ]
    if missing:
        raise SpecError(
            f"moto {version} as installed lacks {', '.join(missing)}; install it afresh: {_INSTALL} "
            "--force-reinstall"
        )


def _has(module: str, name: str) -> bool:
    try:
        value: Any = importlib.import_module(module)
    except ImportError:
        return False
    for part in name.split("."):
        value = getattr(value, part, None)
    return value is not None
