"""Texts of users', as they may be shown."""

from __future__ import annotations

import json

from gptlab.texts import cut_apart, harmless_json, lines, markdown


def test_cut_labels_stay_apart() -> None:
    long = [f"model.width=1024+activation=relu+norm=rms_{letter}" for letter in "ab"]
    assert cut_apart([*long, "x"], 20) == ["model.wid…norm=rms_a", "model.wid…norm=rms_b", "x"]
    alike = [f"{'a' * 30}{letter}{'c' * 30}" for letter in "bd"]
    assert len(set(cut_apart(alike, 20))) == 2
    assert cut_apart(["same", "same"], 20) == ["same", "same"]


def test_no_label_is_broken_in_mid_word() -> None:
    assert lines("width=64,depth=2+no_shortcut", 12) == ["width=64,", "depth=2+", "no_shortcut"]
    assert lines("norm_placement_sandwich", 16) == ["norm_placement_", "sandwich"]
    assert lines("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]


def test_json_says_the_same_without_steering_a_terminal() -> None:
    value = {"a\x1b[31m": "\u202e\x9b \U000e0001 é 日本 \\ \ud800"}
    text = harmless_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(text) == value
    assert all(c.isprintable() or c == "\n" for c in text)


def test_markdown_shows_what_it_is_given() -> None:
    assert markdown("a|b [x](y) **c** <b> a_b _d") == r"a\|b \[x\](y) \*\*c\*\* \<b\> a_b \_d"
