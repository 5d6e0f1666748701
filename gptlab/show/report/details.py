"""The report's smaller parts as plain values: generated texts, failures, environment, how to run it all again."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gptlab.comparing.comparison import Row
from gptlab.show.formats import exact, significant
from gptlab.show.report.payload import Runs
from gptlab.store.damage import DamagedError
from gptlab.store.manifest import Manifest, read_manifest
from gptlab.store.records import Record, parsed_config
from gptlab.store.study import Study
from gptlab.texts import printable

MOST_TEXTS, MOST_FAILURES, MOST_ROWS = 60, 200, 200
MOST_TOKENS = 200
MOST_CONFIGS = 20  # of variants, that are read for the page's head
SCORED = {"validation": "while training", "heldout": "at the end"}


@dataclass(frozen=True)
class Continuation:
    """A generated text in three pieces: as the baseline's, the first token that is not, and what follows."""

    label: str
    same: str
    other: str  # the first different token; empty when there is none
    rest: str
    note: str


def continuations(study: Study) -> tuple[str, list[Continuation], str]:
    """The prompt, one text per variant (of the first seed that has one), and a note on what is left out."""
    frame = study.generations
    if frame.empty:
        return "", [], ""
    tokens: dict[str, list[tuple[int, str]]] = {}
    for run, id_, token in zip(frame["run"], frame["token_id"], frame["token"], strict=True):
        tokens.setdefault(run, []).append((int(id_), str(token)))
    prompts = dict.fromkeys(text for text in study.runs["prompt"] if text)
    found: dict[str, Continuation] = {}
    runs = study.runs
    seed = next(seed for run, seed in zip(runs["run"], runs["seed"], strict=True) if run in tokens)
    for run, label, own_seed, base, prompt in zip(
        runs["run"], runs["label"], runs["seed"], runs["baseline"], runs["prompt"], strict=True
    ):
        if run in tokens and label not in found and own_seed == seed:
            said = f"{printable(prompt)} " if len(prompts) > 1 else ""
            found[label] = _continuation(f"{label}", said, tokens[run], tokens.get(base) if base != run else None)
    shown = list(found.values())[:MOST_TEXTS]
    left_out = [f"The first {MOST_TEXTS} of {len(found):,} variants."] if len(found) > MOST_TEXTS else []
    left_out += [f"Seed {seed} alone; generations.csv has all."] if runs["seed"].nunique() > 1 else []
    return printable(next(iter(prompts))) if len(prompts) == 1 else "", shown, " ".join(left_out)


def _continuation(
    label: str, said: str, own: Sequence[tuple[int, str]], base: Sequence[tuple[int, str]] | None
) -> Continuation:
    own, more = own[:MOST_TOKENS], " \N{HORIZONTAL ELLIPSIS}" if len(own) > MOST_TOKENS else ""
    words = [printable(token) for _, token in own]
    if base is None:
        return Continuation(printable(label), "", "", said + "".join(words) + more, "")
    same = next((k for k, (a, b) in enumerate(zip(own, base, strict=False)) if a[0] != b[0]), min(len(own), len(base)))
    if same == len(own):
        note = "the baseline's text" if same == len(base) or more else f"ends after {same} tokens"
        return Continuation(printable(label), said + "".join(words) + more, "", "", note)
    instead = (
        f"; the baseline has \N{LEFT DOUBLE QUOTATION MARK}{printable(base[same][1])}\N{RIGHT DOUBLE QUOTATION MARK}"
    )
    note = f"differs from token {same + 1} on{instead if same < len(base) else '; the baseline ends'}"
    return Continuation(
        printable(label), said + "".join(words[:same]), words[same], "".join(words[same + 1 :]) + more, note
    )


def failures(rows: Iterable[Row], runs: Runs) -> tuple[list[dict[str, str]], int]:
    """What did not finish, why, and where to look; and how many there are in all."""
    found: list[Record] = []
    labels: list[str] = []
    for row in rows:
        for _, run in sorted(runs[row.label].items()):
            if run.state != "finished":
                found.append(run)
                labels.append(row.label)
    return [
        {
            "label": printable(label), "seed": str(run.run.seed), "state": run.state,
            "folder": printable(run.run.folder),
            "error": "\n".join(printable(line) for line in run.error.splitlines()[:8]) or _why(run.state),
        }
        for label, run in zip(labels[:MOST_FAILURES], found, strict=False)
    ], len(found)  # fmt: skip


def _why(state: str) -> str:
    return {"planned": "never started", "running": "still running"}.get(state, "no reason was recorded")


def environment(runs: Runs) -> list[tuple[str, str]]:
    """Where the numbers come from: what was recorded, each with its variety where runs differ."""
    records = [run for seeds in runs.values() for run in seeds.values()]
    first = next((run for run in records if run.state == "finished"), records[0] if records else None)
    manifest = _manifest(first) if first else Manifest()
    found = [
        ("code", _varieties(run.provenance.code for run in records)),
        ("packages", ", ".join(f"{name} {version}" for name, version in manifest.packages.items())),
        ("computed with", _varieties(run.provenance.environment for run in records)),
        ("platform", manifest.text("platform")),
        ("host", _varieties(run.provenance.host for run in records)),
        ("processors", manifest.text("cpus")),
        ("threads", _varieties(run.provenance.threads for run in records)),
        ("kernels", _varieties(run.provenance.kernels for run in records)),
        ("data (SHA-256)", _varieties(run.provenance.data for run in records)),
        ("random numbers", {"paired": "initial weights paired with the baseline's by name (rng: paired)",
                            "global": "one global stream (rng: global)"}.get(manifest.text("rng"))),
        ("started", manifest.text("start")),
    ]  # fmt: skip
    return [(name, printable(str(value))) for name, value in found if value]


def _manifest(run: Record) -> Manifest:
    try:
        return read_manifest(run.folder)
    except DamagedError:
        return Manifest()


def _varieties(values: Iterable[str]) -> str:
    """`a`, or `a (8 runs), b (2 runs)`."""
    counts = Counter(value for value in values if value)
    if len(counts) < 2:
        return next(iter(counts), "")
    listed = [f"{value} ({number:,} run{'s' if number > 1 else ''})" for value, number in counts.most_common(5)]
    return ", ".join(listed) + (f", and {len(counts) - 5} more" if len(counts) > 5 else "")


def commands(study: Study) -> list[tuple[str, str]]:
    """(what it does, the command)."""
    folder = shlex.quote(str(study.folder))
    found = [("the whole study", shlex.join(study.plan.command))] if study.plan.command else []
    runs = study.plan.runs
    one = next((run for run in runs if run.overrides and run.baseline_id != run.id), runs[0] if runs else None)
    if one and one.overrides:
        found.append(("one variant alone", shlex.join(["gptlab", *one.overrides])))
    found += [
        ("this comparison in the terminal", f"gptlab compare {folder}"),
        ("this report", f"gptlab report {folder}"),
    ]
    return [(what, printable(command)) for what, command in found]


def trained(runs: Runs) -> list[str]:
    """What was trained: sizes, budget, batch, rate, validation tokens; of runs that differ, all of them."""
    first = [next(iter(seeds.values())) for seeds in runs.values() if seeds][:MOST_CONFIGS]
    configs = [config for record in first if (config := parsed_config(record.folder))]
    finished = [run.metrics for seeds in runs.values() for run in seeds.values() if run.metrics]

    def setting(key: str) -> str:
        return " or ".join(dict.fromkeys(setting_word(c[key]) for c in configs if c.get(key) is not None))

    def measured(name: str) -> str:
        known = [metrics[name] for metrics in finished if name in metrics]
        return " to ".join(dict.fromkeys(exact(end(known)) for end in (min, max))) if known else ""

    model = {
        "parameters": measured("parameters"), "layers": setting("model.n_layers"), "wide": setting("model.emb_dim"),
        "heads": setting("model.n_heads"),
        "tokens of context": setting("train.context") or setting("model.context_length"),
    }  # fmt: skip
    words = [_amounts(model)]
    if steps := measured("steps"):
        words.append(_amounts({
            "steps": steps, "tokens": measured("tokens"), "sequences a step": setting("train.batch_size"),
        }))  # fmt: skip
        schedule = setting("train.schedule")
        words.append(f"learning rate {setting('train.learning_rate')}" + (f", {schedule}" if schedule else ""))
        records = [run for seeds in runs.values() for run in seeds.values()]
        words += [text for part, when in SCORED.items() if (text := _scored(records, part, when))]
    return [word for word in words if word and not word.endswith("rate ")]


def _scored(records: Sequence[Record], part: str, when: str) -> str:
    """On how many targets each run was scored, as its result says: `scored on 8,192 to 9,000 validation tokens`."""
    found = [run.scored[part] for run in records if part in run.scored]
    if not (tokens := [one.tokens for one in found if one.tokens is not None]):
        return ""
    number = " to ".join(dict.fromkeys(exact(end(tokens)) for end in (min, max)))
    shares = {one.share for one in found}
    share = shares.pop() if len(shares) == 1 else None
    whole = "" if share is None else f" ({significant(100 * share, 3)} % of what is held out)"
    return f"scored on {number} tokens {when}{whole}"


def _amounts(found: dict[str, str]) -> str:
    return ", ".join(f"{value} {what}" for what, value in found.items() if value)


def setting_word(value: Any) -> str:
    """A setting as text that may be shown: words as they are, all else as JSON."""
    return printable(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str))


def changes(rows: Sequence[Row]) -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """(variant, its baseline, [(key, baseline's value, own value)]) for each row that changes something."""
    return [
        (
            printable(row.label),
            printable(row.baseline or ""),
            [(printable(key), setting_word(old), setting_word(new)) for key, (old, new) in row.delta.items()],
        )
        for row in [row for row in rows if row.delta][:MOST_ROWS]
    ]
