"""A table for every terminal width: no word is broken and nothing is cut off."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tidemill.render.fitting_table import ruled

ID = "cr-0a1b2c3d4e5f60718"
SENTENCE = "bought elsewhere: take it in, or let whoever bought it use it"


def shown(width: int, *, foldable: bool = True) -> str:
    table = ruled()
    table.add_column("id", no_wrap=True)
    table.add_column("fee", justify="right", no_wrap=True)
    table.add_column("next", no_wrap=not foldable)
    table.add_row(ID, "$10,116", SENTENCE)
    table.add_row(ID[::-1], "", "nothing")
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table)
    return out.getvalue()


@pytest.mark.parametrize("width", [140, 100, 80, 64, 60, 40, 36])
def test_no_width_breaks_a_word(width: int):
    text = shown(width)
    assert {ID, ID[::-1], "$10,116", *SENTENCE.split()} <= set(text.split())
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_row_is_one_line_if_it_fits():
    assert f"{ID}  $10,116  {SENTENCE}" in shown(140)


def test_the_column_with_the_sentence_is_narrowed_first():
    head, _, first, *rest = shown(64).splitlines()
    assert head.split() == ["id", "fee", "next"]
    assert first.startswith(f"{ID}  $10,116  bought elsewhere:")
    assert rest
    assert all(line.startswith((" " * len(ID), ID[::-1])) for line in rest)


@pytest.mark.parametrize("foldable", [True, False])
def test_rows_become_lists_where_words_would_break(foldable: bool):
    lines = [line.rstrip() for line in shown(44, foldable=foldable).splitlines()]
    assert lines[:2] == [f"id    {ID}", "fee   $10,116"]
    assert lines[-3:] == [f"id    {ID[::-1]}", "next  nothing", ""]
