"""The Python API, which is what the command line uses: compose a config, build its model, run it, compare the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlab import registry
from gptlab.config import Config
from gptlab.declare.overrides import slug
from gptlab.declare.to_config import settled_and_checked
from gptlab.errors import GptlabError
from gptlab.identity import identity
from gptlab.planning.composing import compose, refuse_unsolved
from gptlab.running.execute import execute

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from gptlab.check.inspection import Inspection
    from gptlab.generating.generate import Generated
    from gptlab.running.trained import Trained
    from gptlab.show.presented import PresentedComparison
    from gptlab.store.study import Study

__all__ = [
    "Run", "build", "compare", "compose", "export", "generate", "inspect", "load", "load_weights", "run", "trained",
]  # fmt: skip


def build(config: Config) -> nn.Module:
    """The model that `config` declares, with its initial weights, on the CPU, in eval mode.

    Token ids (B, T) in, logits (B, T, vocab_size) out. The global random state is neither used nor changed.
    """
    from gptlab.model import build as build_model

    refuse_unsolved(config)
    registry.load_plugins(config.plugins)
    return build_model(config)


@dataclass(frozen=True)
class Run:
    """A run that has been executed: where it is recorded and what came out."""

    folder: Path
    result: dict[str, Any]

    @property
    def metrics(self) -> dict[str, float]:
        """The single numbers: parameters, loss, grad_norm, ..."""
        return self.result["metrics"]

    @property
    def layers(self) -> pd.DataFrame:
        """Tidy measurements by layer and part: step, layer, part, metric, value."""
        return self._table("layers")

    @property
    def tensors(self) -> pd.DataFrame:
        """One row for each parameter tensor, with its gradient."""
        return self._table("tensors")

    @property
    def shapes(self) -> pd.DataFrame:
        """The shape trace."""
        return self._table("shapes")

    @property
    def generation(self) -> dict[str, Any]:
        """Prompt, ids, text and margins of the greedy continuation."""
        from gptlab.store.files import read_json

        return read_json(self._existing("generation.json"))

    def _table(self, stem: str) -> pd.DataFrame:
        import pandas as pd

        from gptlab.store.csv_text import unguarded

        frame = pd.read_csv(self._existing(f"{stem}.csv"))
        texts = frame.select_dtypes(exclude="number").columns
        return frame.assign(**{name: frame[name].map(unguarded, na_action="ignore") for name in texts})

    def _existing(self, name: str) -> Path:
        path = self.folder / name
        if not path.exists():
            raise GptlabError(
                f"{path}: not there. The run is {self.result['state']}, or its probe was left out.",
                code="artifact-not-there",
                path=path,
            )
        return path


def run(config: Config, folder: Path | str | None = None) -> Run:
    """Measure one variant, recorded in `folder` (by default a new one under `config.output_dir`).

    ConfigError for a config that cannot run. An error of the variant itself is recorded, not raised: see
    `Run.result["state"]` and `["error"]`.
    """
    refuse_unsolved(config)
    registry.load_plugins(config.plugins)
    config = settled_and_checked(config)  # it may have been made or changed by hand
    if folder is None:
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
        folder = Path(config.output_dir) / "python" / stamp / f"{slug(config.label)}-{identity(config)[:8]}"
    return Run(Path(folder), execute(config, Path(folder)))


def trained(run: Path | str) -> Trained:
    """The model that a run has left: `.model`, `.tokenizer`, `.config`, `.step`. `run`: its folder, a
    study's with this one run, or the beginning of its id.

    Its newest checkpoint, or its initial weights where it was not trained. GptlabError where there is none.
    """
    from gptlab.running.trained import run_folder
    from gptlab.running.trained import trained as trained_model

    return trained_model(run_folder(str(run)))


def load_weights(path: Path | str, **model: Any) -> Trained:
    """The model in a file of weights, as it is: `.model`, `.tokenizer`, `.config`.

    `path`: a folder of Hugging Face's, the book's .pth, nanoGPT's ckpt.pt, a run of gptlab's, or what `export` wrote.
    `model`: keys that the file leaves open, such as n_heads of the book's. GptlabError for what cannot be read.
    """
    from gptlab.running.trained import of_weights

    return of_weights(path, **model)


def inspect(path: Path | str) -> Inspection:
    """What a file of weights holds, its headers alone read: format, family, implied config, what is missing or left.

    GptlabError where nothing is, or nothing that is known, or a pickle with code in it.
    """
    from gptlab.check.inspection import inspect as inspected

    return inspected(path)


def export(found: Trained, to: str, folder: Path | str) -> Path:
    """Write a model, from `trained` or `load_weights`, into a new folder: `to` is hf, safetensors or book.

    Returns the file with its tensors. GptlabError, naming the key that stands in the way, where that form has no exact
    words for the model.
    """
    from gptlab.running.exporting import export as exported

    return exported(found, to, folder)


def generate(
    model: nn.Module, prompts: str | Sequence[str] | Sequence[Sequence[int]], tokens: int = 200, **options: Any
) -> list[Generated]:
    """Continue each prompt by `tokens` tokens: texts, with `tokenizer=`, or lists of token ids.

    Options are those of `gptlab.generating.generate`: temperature, top_k, top_p, min_p, repetition_penalty, stop, seed,
    precision, cache, on_text. ConfigError for what cannot be.
    """
    from gptlab.generating.generate import generate as generated

    return generated(model, prompts, tokens, **options)


def load(path: Path | str) -> Study:
    """The study in the folder `path`: data frames `runs`, `layers`, `generations` and `steps`, read from its files.

    GptlabError when there is no study.
    """
    from gptlab.store.study import load_study

    return load_study(path)


def compare(
    *paths: Path | str,
    baseline: str | None = None,
    metric: str | Sequence[str] = (),
    by: str | None = None,
    margin: str | float | None = None,
    pooled: bool = False,
) -> PresentedComparison:
    """What `gptlab compare` shows, for studies or single runs: `.frame()` is the table, `.rows` its evidence.

    In a notebook it is a table, and `.latex()` is one for a paper.

    ConfigError for what cannot be compared.
    """
    from gptlab.comparing.assemble import compare as compare_runs
    from gptlab.show.presented import PresentedComparison

    metrics = [metric] if isinstance(metric, str) else list(metric)
    found = compare_runs(paths, baseline=baseline, metrics=metrics, by=by, margin=margin, pooled=pooled)
    return PresentedComparison.of(found)
