"""What we wrote ourselves, shown at once: the API server's answer comes before the watch tells of it.

It stands between the reflectors and the state. A watch may still be behind an answer: what it tells of an older version
of the object is left out, and so is what it tells of an object that is certainly gone.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tidemill.kube.codec import Codec, Unreadable
from tidemill.kube.reflector import Sink


class Written:
    def __init__(self, sink: Sink, codecs: Mapping[str, Codec[Any]]) -> None:
        self._sink, self._codecs = sink, codecs
        self._lock = threading.RLock()  # held while the sink is told: the order of two tellers is one order
        self._versions: dict[str, int] = {}  # by uid: the newest that the sink was told
        # By uid, their kind; until the watch has it:
        self._answered: dict[str, str] = {}  # the newest version is an answer
        self._gone: dict[str, str] = {}
        self._before_list: dict[str, set[str]] = {}  # by kind: what was answered before its list began

    def begin_list(self, kind: str) -> Collection[str]:
        """A list of this kind begins, and will be right about everything that was answered until now, also where it
        shows less: then etcd was restored. Returns uids that it must tell of, changed or not."""
        with self._lock:
            answered = (*self._answered.items(), *self._gone.items())
            self._before_list[kind] = before = {uid for uid, its_kind in answered if its_kind == kind}
            return frozenset(before)

    def learn(self, kind: str, body: bytes) -> None:
        codec = self._codecs.get(kind)
        if codec is None:
            return
        one = codec.one(body)
        uid, version = one.metadata.uid, _number(one.metadata.resource_version)
        if isinstance(one, Unreadable) or not uid:
            return  # the watch will tell
        with self._lock:
            # What the watch does not know (any more) would stay for ever.
            if version <= self._versions.get(uid, version):
                return
            self._versions[uid] = version
            self._answered[uid] = kind
            self._newer_than_lists(uid)
            self._sink.apply(kind, (one,), (), listed=False)

    def forget(self, kind: str, uid: str) -> None:
        with self._lock:
            if uid in self._versions:
                self._drop(uid)
                self._gone[uid] = kind
                self._newer_than_lists(uid)
                self._sink.apply(kind, (), (uid,), listed=False)

    def apply(self, kind: str, changed: Sequence[Any], removed: Sequence[str], *, listed: bool) -> None:
        with self._lock:
            for uid in removed:
                self._drop(uid)
                self._gone.pop(uid, None)
            for uid in self._before_list.pop(kind, ()) if listed else ():
                self._answered.pop(uid, None)
                self._gone.pop(uid, None)
            news = [one for one in changed if self._is_news(one, listed)]
            try:
                self._sink.apply(kind, news, removed, listed=listed)
            except BaseException:
                for one in news:  # told again, the same versions are news
                    self._drop(one.metadata.uid)
                raise

    def _newer_than_lists(self, uid: str) -> None:
        for before in self._before_list.values():
            before.discard(uid)

    def _drop(self, uid: str) -> None:
        self._versions.pop(uid, None)
        self._answered.pop(uid, None)

    def _is_news(self, one: Any, listed: bool) -> bool:
        """A list may show an older version than a watch did (after a restore); not than an answer that came while it
        was under way."""
        uid, version = one.metadata.uid, _number(one.metadata.resource_version)
        if uid in self._gone:
            return False
        known = self._versions.get(uid, -1)
        if version < known and (uid in self._answered or not listed):
            return False
        self._versions[uid] = version
        self._answered.pop(uid, None)
        return version != known


def _number(version: str) -> int:
    """Versions of one kind of object are numbers that grow (KEP 5504)."""
    return int(version) if version.isdecimal() else 0
