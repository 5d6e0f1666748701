"""Study folders made by the contract, without a model: what the results code is tested on and looked at with."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

GROUPS = {
    "token_embedding": 38_597_376,
    "position": 786_432,
    "attention": 28_320_768,
    "feed_forward": 56_669_184,
    "norm": 36_864,
    "final_norm": 1_536,
    "head": 38_597_376,
}
WORDS = [" Feature", " iman", " Byes", "wick", "attribute", " argue", " logger", " Normandy", " Compton", " analogous"]
LN_VOCAB = math.log(50257)


@dataclass(frozen=True)
class Variant:
    """One row of a made-up sweep: how it differs from the reference and how its run ended."""

    label: str
    delta: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=lambda: dict(GROUPS))
    growth: float = 1.06  # gradient norm of a block relative to the next one
    scale: float = 1.0
    loss: float = 10.98
    words: Sequence[str] = tuple(WORDS)
    layers: int = 12
    state: str = "finished"
    error: str | None = None
    part_names: Sequence[str] = ("attention", "feed_forward", "norm")
    warnings: Sequence[str] = ()


def _without(**groups: int) -> dict[str, int]:
    return {**GROUPS, **groups}


BASELINE = Variant("none")
TWELVE = (
    BASELINE,
    Variant(
        "post_ln",
        {"model.norm_placement": ("pre", "post")},
        _without(norm=0),
        1.0,
        0.7,
        11.0213,
        (" rooft", " Ethiopian", *WORDS[2:]),
    ),
    Variant(
        "no_shortcut",
        {"model.shortcut": ("add", "none")},
        growth=0.31,
        scale=0.4,
        loss=10.9012,
        words=[" gearing"] * 10,
    ),
    Variant(
        "relu",
        {"model.activation": ("gelu_tanh", "relu")},
        growth=1.07,
        scale=1.02,
        loss=10.9791,
        words=(*WORDS[:4], " stew", *WORDS[5:]),
    ),
    Variant("gelu", {"model.activation": ("gelu_tanh", "gelu")}, loss=10.98001, scale=1.00001),
    Variant(
        "rmsnorm",
        {"model.norm": ("layernorm", "rmsnorm")},
        _without(norm=18_432, final_norm=768),
        loss=10.9836,
        scale=1.01,
        words=(*WORDS[:7], " slot", *WORDS[8:]),
    ),
    Variant(
        "expansion_2",
        {"model.expansion": (4.0, 2.0)},
        _without(feed_forward=28_339_200),
        loss=10.9512,
        scale=0.93,
        words=(*WORDS[:1], "\n\n", " [red]bold[/red]", "\x1b[31m", "\ufffd", *WORDS[5:]),
    ),
    Variant(
        "tied",
        {"model.tie_weights": (False, True)},
        _without(head=0),
        loss=10.8301,
        scale=0.21,
        growth=0.98,
        words=[" Hello"] * 10,
    ),
    Variant("no_position", {"model.position": ("learned", "none")}, _without(position=0), loss=10.9634),
    Variant("qkv_bias", {"model.qkv_bias": (False, True)}, _without(attention=28_348_416), loss=10.9833, scale=1.003),
    Variant("not_causal", {"model.causal": (True, False)}, loss=10.9777, growth=1.04),
    Variant(
        "post_ln+no_shortcut+relu",
        {
            "model.norm_placement": ("pre", "post"),
            "model.shortcut": ("add", "none"),
            "model.activation": ("gelu_tanh", "relu"),
        },
        _without(norm=0),
        growth=0.06,
        scale=0.2,
        loss=10.8251,
        words=[" the"] * 10,
    ),
    Variant(
        "wide_heads",
        {"model.n_heads": (12, 7)},
        state="failed",
        error="RuntimeError: shape '[2, 64, 7, 109]' is invalid for input of size 98304\nmore detail on line two",
    ),
)
MLP = tuple(
    Variant(
        label,
        {} if label == "none" else {"model.shortcut": ("add", "none")},
        {"linear": 47},
        growth,
        1e-3,
        0.33,
        (),
        5,
        part_names=("linear",),
    )
    for label, growth in (("none", 1.6), ("no_shortcut", 0.25))
)


def run_id(variant: Variant, seed: int) -> str:
    """A made-up identity: as long as a real one."""
    return hashlib.sha256(f"{variant.label}/{seed}".encode(errors="backslashreplace")).hexdigest()


def make_study(
    root: Path,
    variants: Iterable[Variant] = TWELVE,
    seeds: Sequence[int] = (123,),
    *,
    name: str = "chapter4",
    question: str = "What does each piece of GPT-2 124M do at initialisation?",
    stamp: str = "2026-01-02_03-04-05-000006",
    baseline: str | None = "none",
) -> Path:
    """Write a study folder and return it. A state of `planned` leaves the run's folder out, `crashed` its result."""
    folder = root / name / stamp
    folder.mkdir(parents=True)
    variants = list(variants)
    ids = {(v.label, s): run_id(v, s) for v in variants for s in seeds}
    rows = []
    for seed in seeds:
        for variant in variants:
            id_ = ids[variant.label, seed]
            run_folder = f"{_folder_name(variant.label)}-s{seed}-{id_[:8]}"
            rows.append(
                {
                    "id": id_,
                    "label": variant.label,
                    "seed": seed,
                    "folder": run_folder,
                    "overrides": [],
                    "baseline_id": ids.get((baseline or "", seed)),
                    "delta": {key: list(pair) for key, pair in variant.delta.items()},
                }
            )
            if variant.state != "planned":
                _write_run(folder / run_folder, variant, seed, id_)
    plan = {"schema": 1, "study": name, "question": question, "command": ["gptlab", f"experiment={name}"]}
    plan |= {"baseline": baseline or "", "primary_metric": "loss", "runs": rows}
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    return folder


def _folder_name(label: str) -> str:
    """The label where it can be a file's name on any system."""
    return label if re.fullmatch(r"[\w+=,. $-]+", label) else hashlib.sha256(repr(label).encode()).hexdigest()[:8]


def _write_run(folder: Path, variant: Variant, seed: int, id_: str) -> None:
    folder.mkdir()
    result: dict[str, Any] = {"schema": 1, "id": id_, "label": variant.label, "seed": seed}
    result |= {"state": variant.state, "error": variant.error, "traceback": None, "seconds": 1.25, "notes": []}
    result |= {"warnings": list(variant.warnings), "metrics": {}}
    if variant.state == "finished":
        drawn = replace(
            variant, scale=variant.scale * (1 + 0.02 * (seed % 7 - 4)), loss=variant.loss + 1e-3 * (seed - 123)
        )
        layers, tensors = _gradients(drawn)
        (folder / "layers.csv").write_text(_csv("step,layer,part,metric,value", layers), encoding="utf-8")
        header = "name,shape,numel,group,layer,grad_mean_abs,grad_norm"
        (folder / "tensors.csv").write_text(_csv(header, tensors), encoding="utf-8")
        if variant.words:
            (folder / "generation.json").write_text(json.dumps(_generation(variant)), encoding="utf-8")
        result["metrics"] = _metrics(drawn, layers)
    result["artifacts"] = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())
    }
    if variant.state != "crashed":
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def _gradients(variant: Variant) -> tuple[list[list[Any]], list[list[Any]]]:
    shares = {"attention": 0.6, "feed_forward": 0.75, "norm": 0.1, "linear": 1.0}
    sizes = {"attention": 2_360_064, "feed_forward": 4_722_432, "norm": 3_072, "linear": 9}
    layers: list[list[Any]] = []
    tensors: list[list[Any]] = []

    def add(layer: int | str, part: str, norm: float, numel: int) -> None:
        mean = norm / math.sqrt(numel) * 0.6
        layers.extend([[0, layer, part, "grad_mean_abs", mean], [0, layer, part, "grad_norm", norm]])
        tensors.append([f"{layer}.{part}", f"({numel},)", numel, part, layer, mean, norm])

    whole = sum(sizes[part] for part in variant.part_names)
    for layer in range(variant.layers):
        depth = variant.layers - 1 - layer
        norm = 0.45 * variant.scale * variant.growth**depth * (1 + 0.05 * math.sin(3 * layer))
        for part in variant.part_names:
            add(layer, part, norm * shares[part], sizes[part])
        norm *= math.hypot(*(shares[part] for part in variant.part_names))
        layers += [[0, layer, "all", "grad_mean_abs", norm / math.sqrt(whole)], [0, layer, "all", "grad_norm", norm]]
    if "linear" not in variant.part_names:
        add("", "token_embedding", 0.8 * variant.scale * variant.growth**variant.layers, 38_597_376)
        add("", "head", 1.9, 38_597_376)
    return layers, tensors


def _metrics(variant: Variant, layers: list[list[Any]]) -> dict[str, Any]:
    total = sum(variant.groups.values())
    head = variant.groups.get("head", 0)
    flops = 2 * (total - variant.groups.get("token_embedding", 0)) + 37_748_736
    norms = [row[4] for row in layers if row[3] == "grad_norm" and row[2] != "all"]
    whole = [row[4] for row in layers if row[2:4] == ["all", "grad_norm"]]
    means = [row[4] for row in layers if row[3] == "grad_mean_abs" and row[2] != "all"]
    return {
        "parameters": total,
        "parameters_untied": total if head else total + 38_597_376,
        "parameters_tied": total - head,
        "mib": total * 4 / 2**20,
        "flops_forward_per_token": flops,
        "flops_training_per_token": 3 * flops,
        "loss": variant.loss,
        "ln_vocab_size": LN_VOCAB,
        "grad_norm": math.hypot(*norms),
        "grad_norm_first": whole[0],
        "grad_norm_last": whole[-1],
        "grad_mean_abs": sum(means) / len(means),
        **{f"parameters/{group}": count for group, count in variant.groups.items()},
    }


def _generation(variant: Variant) -> dict[str, Any]:
    prompt, new = "Hello, I am", "".join(variant.words)
    ids = [int(hashlib.sha256(repr(word).encode()).hexdigest()[:4], 16) for word in variant.words]
    return {
        "prompt": prompt,
        "prompt_ids": [15496, 11, 314, 716],
        "token_ids": ids,
        "margins": [0.25 + 0.01 * place for place in range(len(ids))],
        "text": prompt + new,
        "new_text": new,
        "tokens": list(variant.words),
    }


def _csv(header: str, rows: list[list[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header.split(","))
    writer.writerows(rows)
    return out.getvalue()
