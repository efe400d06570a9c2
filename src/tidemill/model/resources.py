"""Amounts of resources: cpu in milli, memory in bytes, everything else counted.

`Amounts` is what a pod asks for: it hashes, so that equal requests are one class. `Resources` is what a node has: it
changes as pods come and go. A resource that is not listed is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Resource name -> amount, sorted by name. A tuple and not a dict, so that shapes hash and equal shapes are one class.
Amounts = tuple[tuple[str, int], ...]

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"  # a node takes only so many


def amount(amounts: Amounts, name: str) -> int:
    """How much of `name` there is; 0 when it is not listed."""
    for key, value in amounts:
        if key == name:
            return value
    return 0


class Resources(dict[str, int]):
    """A vector of amounts by resource name. It may go below zero: a pod bound by name takes what is not there."""

    __slots__ = ()

    def add_pod(self, requests: Amounts) -> None:
        """Its requests, and one of the pods a node takes."""
        for name, wanted in requests:
            self[name] = self.get(name, 0) + wanted
        self[PODS] = self.get(PODS, 0) + 1

    def subtract_pod(self, requests: Amounts) -> None:
        for name, wanted in requests:
            self[name] = self.get(name, 0) - wanted
        self[PODS] = self.get(PODS, 0) - 1

    def minus(self, taken: Mapping[str, int]) -> Resources:
        left = Resources(self)
        for name, used in taken.items():
            left[name] = left.get(name, 0) - used
        return left

    def beyond(self, kept: Mapping[str, int]) -> Resources:
        """What it has more of than `kept`, and how much."""
        more = ((name, have - max(0, kept.get(name, 0))) for name, have in self.items())
        return Resources((name, amount) for name, amount in more if amount > 0)

    def raise_to(self, amounts: Iterable[tuple[str, int]]) -> None:
        """Of each resource the larger amount."""
        for name, wanted in amounts:
            if wanted > self.get(name, 0):
                self[name] = wanted

    def fits(self, requests: Amounts) -> bool:
        """One more pod finds room here."""
        if self.get(PODS, 0) < 1:
            return False
        for name, wanted in requests:
            if wanted > 0 and self.get(name, 0) < wanted:
                return False
        return True

    def count_fitting(self, requests: Amounts) -> int:
        """How many pods of these requests find room beside each other."""
        return max(0, min(self.get(name, 0) // wanted for name, wanted in (*requests, (PODS, 1)) if wanted))
