"""Which metrics a comparison shows: the declared one, those that vary with the seed, or what was asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from gptlab.errors import closest, wrong_value
from gptlab.metrics import METRICS, Metric, metric
from gptlab.store.study_sources import Source

CLOSED_FORMS = ("initial_loss_expected",)  # computed from the weights, and not measured


def primary_of(sources: Sequence[Source]) -> tuple[str, list[str]]:
    """The declared primary metric, and a warning where the studies declare several."""
    declared = list(dict.fromkeys(s.plan.primary_metric for s in sources if s.plan.primary_metric))
    if not declared:  # run folders without a study
        configs = (_declared_by(record.folder) for source in sources for record in source.records[:1])
        declared = list(dict.fromkeys(filter(None, configs))) or ["loss"]
    if len(declared) == 1:
        return declared[0], []
    return declared[0], [
        f"The studies declare different primary metrics ({', '.join(declared)}); the first one counts."
    ]


def _declared_by(folder: Path) -> str:
    """The primary metric that a run's config declares; empty when it cannot be had."""
    import yaml  # type: ignore[import-untyped]

    try:
        content = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        return str(content["experiment"]["primary_metric"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return ""


def shown(found: Collection[str], primary: str, asked: Sequence[str]) -> tuple[str, ...]:
    """What is shown: the primary metric, then all that varies with the seed, as declared; or what was asked for."""
    if asked:
        for name in asked:
            declared(name, strict=True)
            if name not in found:
                near = closest(name, found)
                hint = f" Did you mean {near!r}?" if near else ""
                listed = ", ".join(known for known in found if "/" not in known) or "nothing"
                raise wrong_value(
                    "metric",
                    name,
                    f"not measured in any of these runs.{hint} Measured: {listed}.",
                    code="metric-not-measured",
                    suggestion=near,
                    allowed=list(found),
                )
        return tuple(dict.fromkeys(asked))
    places = {name: place for place, name in enumerate(METRICS)}
    # Times depend on the machine and its load: they are compared only where somebody asks for them.
    rest = [
        name
        for name in found
        if name != primary and not on_request(name) and declared(name).kind not in ("exact", "timing")
    ]
    rest.sort(key=lambda name: places.get(name, len(places)))
    return (primary, *rest)


def on_request(name: str) -> bool:
    """Whether a metric is shown to those alone who ask for it: a part of another one (parameters/attention)."""
    return "/" in name or name in CLOSED_FORMS


def declared(name: str, *, strict: bool = False) -> Metric:
    """The declaration of `name`. One that nobody declared is only a number with a name, unless `strict`."""
    if not strict and name.split("/", 1)[0] not in METRICS:
        return Metric(name, "", "neither", "stochastic", "not declared")
    found = metric(name)
    return found if found.name == name else replace(found, name=name)
