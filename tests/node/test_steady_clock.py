"""A step of the node's clock must neither end pods early nor let them lose grace."""

from __future__ import annotations

import pytest

from tidemill.node.steady_clock import SteadyClock


class Machine:
    def __init__(self) -> None:
        self.wall_s = 1_795_000_000.0
        self.elapsed_s = 17.0
        self.clock = SteadyClock(lambda: self.wall_s, lambda: self.elapsed_s)

    def wait(self, seconds: float) -> None:
        self.wall_s += seconds
        self.elapsed_s += seconds

    def read_s(self) -> float:
        return self.clock.now().timestamp()


@pytest.mark.parametrize("jump_s", [7200.0, -7200.0, 6.0, -6.0])
def test_a_jump_that_is_taken_back_is_not_seen(jump_s):
    machine = Machine()
    truth = machine.wall_s
    machine.wall_s += jump_s
    for _ in range(5):
        machine.wait(10)
        assert machine.read_s() == pytest.approx(truth + machine.elapsed_s - 17)
    machine.wall_s -= jump_s
    machine.wait(10)
    assert machine.read_s() == pytest.approx(machine.wall_s)


@pytest.mark.parametrize("jump_s", [7200.0, -7200.0])
def test_a_clock_that_stays_where_it_was_set_to_is_believed_after_a_minute(jump_s):
    machine = Machine()
    machine.wall_s += jump_s
    before = machine.read_s()
    assert before == pytest.approx(machine.wall_s - jump_s)
    machine.wait(59)
    assert machine.read_s() == pytest.approx(machine.wall_s - jump_s)
    machine.wait(1)
    assert machine.read_s() == pytest.approx(machine.wall_s)


def test_a_clock_that_jumps_about_is_never_believed():
    machine = Machine()
    truth = machine.wall_s
    for number in range(100):
        machine.wait(10)
        machine.wall_s += 100 if number % 2 else -300
        machine.elapsed_s += 0
        assert machine.read_s() == pytest.approx(truth + machine.elapsed_s - 17)


def test_slow_corrections_are_followed():
    machine = Machine()
    for _ in range(100):
        machine.wait(10)
        machine.wall_s += 0.4
        assert machine.read_s() == pytest.approx(machine.wall_s)
