"""The study in the terminal: the first thing that a user sees.

Sections of columns are packed side by side while they fit, and stacked where they do not, so that at any width every
number is whole. Without a terminal (a pipe, a file, a notebook) it is plain text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from gptlab.comparing.caption import caption
from gptlab.comparing.comparison import Comparison
from gptlab.show.comparison_table import print_advice, print_remarks, print_tables
from gptlab.show.formats import SAME
from gptlab.show.layout import emit, make_console, pack, print_whole
from gptlab.show.study_columns import STATE_STYLES, Rows, key_columns, prompts, rows_of, sections
from gptlab.show.surprises import surprises
from gptlab.store.study import Study
from gptlab.texts import printable

__all__ = ["STATE_STYLES", "emit", "make_console", "print_study"]


def print_study(
    study: Study,
    console_width: int | None = None,
    file: TextIO | None = None,
    comparison: Comparison | None = None,
) -> None:
    """Print the table of `study` to `file` (standard output), as wide as the terminal unless told otherwise.

    With several seeds in `comparison` a row is a variant, and the numbers are means; else a row is a run.
    """
    console = make_console(console_width, file)
    if comparison and study.runs["seed"].nunique() > 1:
        _print_variants(console, study, comparison)
        return
    rows = rows_of(study)
    with console.capture() as capture:
        _print_title(console, study)
        if comparison:
            print_advice(console, comparison)
        for table in pack(console, key_columns(rows), sections(rows)):
            print_whole(console, table)
            console.print()
        _print_caption(console, study, rows)
        _print_notes(console, study)
    emit(console, capture.get())


def _print_variants(console: Console, study: Study, comparison: Comparison) -> None:
    with console.capture() as capture:
        _print_title(console, study)
        print_tables(console, comparison)
        console.print(Text(printable(caption(comparison)), style="dim"))
        states = Counter(study.runs["state"])
        console.print(Text(f"Finished: {states['finished']} of {len(study.runs)} runs.", style="dim"))
        console.print(Text(f"Files: {printable(str(study.folder))}", style="dim"), soft_wrap=True)
        print_remarks(console, comparison)
        _print_notes(console, study)
    emit(console, capture.get())


def _print_notes(console: Console, study: Study) -> None:
    for warning in warnings(study):
        console.print(Text.assemble(("Warning: ", "bold yellow"), printable(warning)))
    for label, twin in study.plan.twins.items():
        console.print(Text(printable(f"Matched: {label}: {twin.words}."), style="dim"))
    for note in surprises(study):
        console.print(Text.assemble(("Note: ", "bold"), printable(note)))


def warnings(study: Study) -> list[str]:
    """What a reader must know before believing the numbers: the runs' own warnings, and variants that look alike."""
    found = [f"plan.json could not be used ({study.plan.problem}); the runs are those found in the folder."]
    return (found if study.plan.problem else []) + warnings_of_runs(study)


def warnings_of_runs(study: Study) -> list[str]:
    """What the runs themselves warn of, and variants that look alike."""
    found = []
    several = study.runs["seed"].nunique() > 1
    for label, seed, texts in zip(study.runs["label"], study.runs["seed"], study.runs["warnings"], strict=True):
        if texts:
            who = f"{label} (seed {seed})" if several else label
            found += [f"{who}: {text}" for text in texts.splitlines()]
    return found + look_alikes(study)


def look_alikes(study: Study) -> list[str]:
    """One sentence per set of variants whose losses and gradients are bit for bit the same with the same seed."""
    if study.layers.empty or "loss" not in study.runs:
        return []
    import numpy as np
    import pandas as pd

    known = study.runs[[name for name in ("loss", "final_loss") if name in study.runs]].astype(object)
    losses = dict(zip(study.runs["run"], known.where(known.notna(), None).itertuples(index=False), strict=True))
    measured: dict[object, list[str]] = {}
    layers = study.layers
    # A row as numbers, so that a run is a few bytes to compare: as many runs as there are, with a thousand rows each.
    words = [pd.factorize(layers[name])[0] for name in ("part", "metric")]
    table = np.column_stack([*(layers[name].to_numpy(dtype=float) for name in ("step", "layer", "value")), *words])
    for run, rows in layers.groupby("run", sort=False).indices.items():
        key = (layers["seed"].iloc[rows[0]], tuple(losses[str(run)]), np.ascontiguousarray(table[rows]).tobytes())
        measured.setdefault(key, []).append(str(layers["label"].iloc[rows[0]]))
    sets = dict.fromkeys(tuple(labels) for labels in measured.values() if len(labels) > 1)
    return [_alike(study, labels) for labels in sets]


def _alike(study: Study, labels: Sequence[str]) -> str:
    text = f"{', '.join(labels[:-1])} and {labels[-1]} measured exactly the same: are they the same model?"
    changed = study.runs["changed"][study.runs["label"].isin(labels)]
    return text + (" Dropout acts in training only." if changed.str.contains("drop_").any() else "")


def _print_title(console: Console, study: Study) -> None:
    question = printable(study.plan.question)
    console.print()
    console.print(Text.assemble((printable(study.plan.study), "bold"), ": " if question else "", question))
    console.print()


def _print_caption(console: Console, study: Study, rows: Rows) -> None:
    seeds = list(dict.fromkeys(str(seed) for seed in study.runs["seed"]))
    states = Counter(study.runs["state"])
    others = ", ".join(f"{number} {state}" for state, number in states.items() if state != "finished")
    names = list(dict.fromkeys(study.runs["label"][study.runs["is_baseline"]]))
    facts = [] if names == ["baseline"] else [f'Baseline: "{" and ".join(names)}".' if names else "No baseline."]
    facts.append(f"Seed{'s' if len(seeds) > 1 else ''}: {', '.join(seeds)}.")
    facts.append(f"Finished: {states['finished']} of {len(study.runs)} runs{f' ({others})' if others else ''}.")
    guesses = list(dict.fromkeys(f"{value:.4f}" for value in rows.values("ln_vocab_size") if value is not None))
    if guesses:
        facts.append(f"ln(vocab_size) = {' or '.join(guesses)}, the loss of guessing all words equally.")
    if not study.layers.empty:
        when = " before training" if study.trained else ""
        facts.append(f"L2 norm, mean |g|: gradient of the loss{when} in the first layer, the last, the whole model.")
    texts = prompts(rows)
    if len(texts) == 1:
        facts.append(f'Prompt: "{printable(texts[0])}".')
    if study.has_baseline:
        facts.append(f"{SAME} is exactly the baseline's value.")
    console.print(Text(printable(" ".join(facts)), style="dim"))
    console.print(Text(f"Files: {printable(str(study.folder))}", style="dim"), soft_wrap=True)
