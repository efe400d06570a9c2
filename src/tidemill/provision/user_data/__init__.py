"""User data: what a node is configured with at first boot. nodeadm for AL2023, TOML settings for Bottlerocket.

Returns the text before it is encoded. Knows no source, no template and no AWS call.
"""

from __future__ import annotations

from tidemill.provision.user_data.bootstrap import Bootstrap as Bootstrap
from tidemill.provision.user_data.bootstrap import Family as Family
from tidemill.provision.user_data.bottlerocket import settings
from tidemill.provision.user_data.nodeadm import archive


def user_data(bootstrap: Bootstrap) -> str:
    match bootstrap.family:
        case Family.AL2023:
            return archive(bootstrap)
        case Family.BOTTLEROCKET:
            return settings(bootstrap)
