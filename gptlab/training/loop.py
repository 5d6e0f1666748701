"""The training loop, and what it brings back."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gptlab.data.batches import Batch, TokenSource
from gptlab.identity import identity
from gptlab.model import GPT, learning_rate_scales
from gptlab.model.gpt import Output
from gptlab.model.heads import PenalisesLogits
from gptlab.probes import Subject
from gptlab.store.names import HISTORY
from gptlab.training import checkpoint, progress
from gptlab.training.budget import Budget
from gptlab.training.conditions import choose_device, conditions, precision, seed_dropout, usable
from gptlab.training.evaluate import Evaluation, Rows, Scores, masked_twin, score
from gptlab.training.history import History
from gptlab.training.intervals import Interval, clocked_warmup, in_steps
from gptlab.training.kernels.loss import head_loss
from gptlab.training.measured import Found, Step, Trained, of_held_out
from gptlab.training.optimizer import Updates
from gptlab.training.outcome import expected_initial_loss
from gptlab.training.patience import Patience
from gptlab.training.probing import UpdateRatio, look
from gptlab.training.schedule import rate_shares
from gptlab.training.trackers import Tracker, open_tracker
from gptlab.training.watch import Watch

TICK_SECONDS = 0.2  # between two tellings of progress
CHECKPOINT_SECONDS = 60.0  # between two checkpoints, where their distance in steps is left open


class Training:
    """One run, from its initial weights or its newest checkpoint to the end of its budget."""

    def __init__(self, subject: Subject, folder: Path, *, resume: bool = False) -> None:
        config, model = subject.config, subject.model
        assert isinstance(model, GPT), "check_training saw to it"
        self.subject, self.folder, self.resume = subject, folder, resume
        self.train, self.seed, self.id = config.train, config.seed, identity(config)
        self.device = choose_device(self.train.device)
        self.kernels, lacking = usable(config)
        self.model = model.to(self.device)
        self.z_loss = model.out_head.z_loss if isinstance(model.out_head, PenalisesLogits) else 0.0
        self.updates = self._new_updates()
        self.run_model: Callable[[Tensor], Output] = model.run
        if self.train.compile:
            self.run_model = torch.compile(model.run)
        self.budget = Budget.of(config)
        self.share = rate_shares(in_steps(self.train, self.budget), self.budget.steps)
        self.source: TokenSource = subject.source  # type: ignore[assignment]
        self.context = self.train.context or model.context_length
        self.evaluation = config.evaluation
        self.row_context = self.evaluation.context or self.context
        self.found = Found()
        self.watch = Watch()
        self.warnings: list[str] = lacking
        uncounted = self.budget.uncounted
        self.notes = [f"training_flops: not counted, because {uncounted}"] if uncounted else []

    def run(self) -> Trained:
        """Train to the end. A kill at any moment leaves a folder that `resume` can go on from."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with conditions(self.train, self.device):
            self._rows = self._rows_of(self.evaluation.tokens)
            self._causal = masked_twin(self.subject.config, self.model)
            expected = expected_initial_loss(self.model, self.subject.config.model)
            after = self._start()
            self.history = History(self.folder, after)
            self.tracker: Tracker = open_tracker(self.subject.config.tracker, self.folder, after)
            self.model.train()
            try:
                if after is None:
                    self._evaluate()
                with Patience() as patience:
                    self._loop(patience)
                self._last_words()
                held_out = self._score_held_out() if self.evaluation.final and self.found.finite else None
            finally:
                self.history.close()
                self.tracker.close()
                self.model.eval()
        checkpoint.tidy(self.folder, self.train.keep_checkpoints)
        return self._trained(expected, held_out)

    def _new_updates(self) -> Updates:
        scales = learning_rate_scales(self.model, self.subject.config.model)
        return Updates(self.model, self.train, scales, flat=self.kernels["optimizer"] == "flat")

    def _start(self) -> int | None:
        """Put back the newest usable checkpoint. Its step; None for a start from the beginning."""
        if not self.resume:
            checkpoint.tidy(self.folder, keep=0)
            return None
        saved, refused = checkpoint.newest(self.folder, self.id)
        self.warnings += refused
        if saved is None:
            self.notes.append("resumed: no checkpoint could be used, started from the beginning")
            return None
        try:
            self.updates.load_state(saved.optimizers)
        except (ValueError, KeyError) as error:  # of an earlier version that recorded no kernels: another layout
            self.warnings.append(f"checkpoint not used: its optimizer does not fit: {error}")
            self.notes.append("resumed: no checkpoint could be used, started from the beginning")
            self.updates = self._new_updates()
            return None
        checkpoint.put_weights(self.model, saved.weights)
        self.found = Found.from_json(saved.progress)
        self.notes.append(f"resumed from step {saved.step}")
        return saved.step

    def _loop(self, patience: Patience) -> None:
        found, spent, train = self.found, self.found.spent, self.train
        told = saved = time.perf_counter()
        evaluate_every, log_every = (Interval(e, self.budget, spent) for e in (self.evaluation.every, train.log_every))
        while found.finite and not self.budget.used_up(spent):
            if patience.asked is not None:
                if spent.step and self.watch.is_sound(found, self.model):
                    self._save()
                patience.deliver()
            number = spent.step + 1
            before = UpdateRatio(self.model) if _is_due(train.probe_every, number) else None
            evaluating, logging = evaluate_every.is_due(spent), log_every.is_due(spent)
            start = time.perf_counter()
            step = self._step(spent.step)
            self.watch.add(number, step)
            if logging or evaluating:
                found.loss = float(step.loss)  # waits for the device, so that the clock tells the truth
            now = time.perf_counter()
            self.budget.add_step(spent, now - start)
            last = self.budget.used_up(spent)
            if logging or evaluating or last:
                self._log(step, evaluating=evaluating or last)
            if before:
                self._probe(before)
            if now - told > TICK_SECONDS:
                told = now
                self._tell()
            late = not train.checkpoint_every and now - saved > CHECKPOINT_SECONDS
            if (last or late or _is_due(train.checkpoint_every, number)) and found.finite:
                if self.watch.is_sound(found, self.model):  # or the last good checkpoint would go
                    self._save()
                    saved = time.perf_counter()
                elif not (logging or evaluating or last):
                    self._log(step, evaluating=False)

    def _step(self, step: int) -> Step:
        """One update of the weights. What it returns has not been waited for."""
        train = self.train
        rate = self.share(step) * clocked_warmup(train, self.budget, self.found.spent)
        batch = self._here(self.source.train_batch(step, train.batch_size, self.context, self.seed))
        losses = []
        auxiliary: dict[str, Tensor] = {}
        parts = zip(batch.inputs.chunk(train.accumulate), batch.targets.chunk(train.accumulate), strict=True)
        for number, (inputs, targets) in enumerate(parts):
            seed_dropout(self.seed, step, number, self.device)
            with precision(train, self.device, self.kernels):
                output = self.run_model(inputs)
                loss = head_loss(
                    output.features, self.model.out_head, targets, self.z_loss,
                    chunked=self.kernels["loss"] == "chunked", onednn=self.kernels["linear"] == "onednn",
                )  # fmt: skip
            total = loss.total / train.accumulate if train.accumulate > 1 else loss.total
            added = {} if loss.z_loss is None else {"z_loss": loss.z_loss / train.accumulate}  # is in the total
            for name, extra in output.losses.items():  # part of the gradient, and of no loss that is reported
                share = extra.float() / train.accumulate
                total = total + share
                added[name] = added[name] + share if name in added else share
            total.backward()
            for name, share in added.items():
                auxiliary[name] = auxiliary.get(name, 0.0) + share.detach()
            losses.append(loss.cross_entropy / train.accumulate if train.accumulate > 1 else loss.cross_entropy)
        norm = self.updates.clip()
        self.updates.set_rate(rate)
        self.updates.step()
        mean = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        return Step(mean, norm, train.learning_rate * rate, auxiliary)

    def _log(self, step: Step, *, evaluating: bool) -> None:
        found = self.found
        found.loss = float(step.loss)
        found.auxiliary = {f"auxiliary_loss/{name}": float(value) for name, value in step.auxiliary.items()}
        metrics: dict[str, float | None] = {"train_loss": found.loss, **found.auxiliary}
        if evaluating:
            metrics |= self._evaluated()
        metrics |= {"grad_norm": float(step.norm), "learning_rate": step.rate}
        finite = all(value is None or math.isfinite(value) for value in metrics.values())
        self.watch.look(found)
        if found.finite and not finite:
            found.finite, found.broke_at = False, found.broke_at or found.spent.step
        self._record(metrics)

    def _evaluate(self) -> None:
        self._record(self._evaluated())

    def _record(self, metrics: dict[str, float | None]) -> None:
        self.history.append(self.found.spent, metrics)
        self.tracker.add(self.found.spent.step, metrics)

    def _evaluated(self) -> dict[str, float | None]:
        found, scores = self.found, self._score(self.model, self._rows)
        found.before = found.before or scores.losses
        causal = self._score(self._causal, self._rows).loss if self._causal else None
        error = scores.error_over(found.before)
        evaluation = Evaluation(found.spent.step, scores.loss, scores.excess, causal, error)
        found.evaluations.append(evaluation)
        return {
            "validation_loss": evaluation.loss, "excess": evaluation.excess, "causal_loss": evaluation.causal_loss
        }  # fmt: skip

    def _score(self, model: GPT, rows: Rows) -> Scores:
        with precision(self.train, self.device, self.kernels):
            return score(model, rows.batches)

    def _score_held_out(self) -> tuple[Rows, Scores]:
        """All that is held out, at the end."""
        rows = self._rows_of(self.evaluation.final_tokens)
        return rows, self._score(self.model, rows)

    def _rows_of(self, tokens: int) -> Rows:
        rows = Rows.of(self.source, tokens, self.row_context)
        return dataclasses.replace(rows, batches=[self._here(batch) for batch in rows.batches])

    def _probe(self, before: UpdateRatio) -> None:
        step = self.found.spent.step
        rows, sample = look(self.subject, step)
        self.found.rows += [*rows, *before.rows(self.model, step)]
        if sample:
            self.found.samples.append(sample)

    def _last_words(self) -> None:
        """What the trained model says, where the probe that lets it speak is on."""
        step, samples = self.found.spent.step, self.found.samples
        if self.found.finite and not (samples and samples[-1]["step"] == step):
            _, sample = look(self.subject, step, only=("generation",))
            if sample:
                samples.append(sample)

    def _save(self) -> None:
        self.history.sync()
        step, found = self.found.spent.step, self.found.to_json()
        checkpoint.save(self.folder, self.id, step, self.model, self.updates.state(), found)
        checkpoint.tidy(self.folder, max(2, self.train.keep_checkpoints))  # two: one may turn out damaged

    def _tell(self) -> None:
        listener, spent = progress.listener(), self.found.spent
        if listener:
            speed, left = spent.tokens / spent.seconds, self.budget.seconds_left(spent)
            listener(progress.Tick(spent.step, self.budget.steps, self.found.loss, speed, left))

    def _here(self, batch: Batch) -> Batch:
        if self.device.type == "cpu":
            return batch
        moved: dict[str, Any] = {k: None if v is None else v.to(self.device) for k, v in vars(batch).items()}
        return Batch(**moved)

    def _trained(self, expected_loss: float | None, held_out: tuple[Rows, Scores] | None) -> Trained:
        outcome, metrics = self.found.outcome(self.train, self.source, self.row_context)
        if expected_loss is not None:
            metrics["initial_loss_expected"] = expected_loss
        tables = {"layers": self.found.rows} if self.found.rows else {}
        scored: dict[str, Any] = {**self._rows.record(), "context": self.row_context}
        if held_out:
            rows, scores = held_out
            metrics |= of_held_out(rows, scores, self.source)
            tables["heldout"] = scores.rows()
            scored["heldout"] = rows.record()
        training = {
            "device": str(self.device), "threads": torch.get_num_threads(), "precision": self.train.precision,
            "kernels": self.kernels,
            "flops_per_step": self.budget.flops_per_step, "tokens_per_step": self.budget.tokens_per_step,
        }  # fmt: skip
        samples = {"samples": {"samples": self.found.samples}} if self.found.samples else {}
        return Trained(
            metrics=metrics,
            tables=tables,
            scored=scored,
            documents={"training": training, **samples},
            notes=self.notes,
            warnings=self.warnings,
            outcome=outcome,
            reason=f"not finite from step {self.found.broke_at}" if self.found.broke_at is not None else "",
            files=[HISTORY],
            artifacts=checkpoint.checksums(self.folder),
        )


def _is_due(every: int | None, step: int) -> bool:
    return bool(every) and step % (every or 1) == 0
