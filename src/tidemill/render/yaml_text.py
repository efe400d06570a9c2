"""Objects for other tools as readable YAML: keys keep their order, long texts are block scalars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True  # no anchors: not every reader supports them


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def yaml_text(objects: Iterable[Mapping[str, Any]]) -> str:
    """One document for each, without a last newline."""
    listed = [dict(each) for each in objects]
    text = yaml.dump_all(listed, Dumper=_Dumper, sort_keys=False, width=1000, explicit_start=len(listed) > 1)
    return str(text).rstrip("\n")
