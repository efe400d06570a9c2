"""What a node was made from, in eight characters: a node that carries another one has drifted.

Only what somebody wrote counts. A setting that a later version adds with a default changes no fingerprint, so an
upgrade never rolls a fleet by itself.
"""

from __future__ import annotations

from hashlib import blake2b

from tidemill.spec.models import NodeClass


def fingerprint(node_class: NodeClass) -> str:
    written = node_class.spec.model_dump_json(by_alias=True, exclude_defaults=True)
    return blake2b(written.encode(), digest_size=4).hexdigest()
