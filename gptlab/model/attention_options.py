"""What options of attention may be, each alone and beside the others."""

from __future__ import annotations

from gptlab.errors import unknown, wrong_value

_OPTIONS = "model.options.attention"
_QK_NORMS = ("none", "rms", "rms_full", "l2")
_SCALES = ("inverse_sqrt", "inverse", "learned")
_IMPLEMENTATIONS = ("auto", "manual", "sdpa")
_GATES = ("none", "headwise", "elementwise")


def check_heads(emb_dim: int | None, n_heads: int, n_kv_heads: int) -> None:
    """ConfigError for heads that do not divide. `emb_dim` is None where the heads have a width of their own."""
    if emb_dim is not None and emb_dim % n_heads:
        raise wrong_value(
            "model.n_heads",
            n_heads,
            f"model.emb_dim={emb_dim} is not divisible by it.",
            code="attention-heads-divide",
            emb_dim=emb_dim,
        )
    if n_kv_heads < 1 or n_heads % n_kv_heads:
        raise wrong_value(
            "model.n_kv_heads",
            n_kv_heads,
            f"model.n_heads={n_heads} is not divisible by it.",
            code="attention-kv-heads-divide",
            n_heads=n_heads,
        )


def check_options(
    qk_norm: str,
    softcap: float | None,
    window: int | None,
    scale: str,
    implementation: str,
    gate: str,
    sinks: bool,
    multiplier: float | None,
) -> None:
    """ConfigError for the first option of `multi_head` that cannot be, alone or beside another."""
    for name, value, allowed in (
        ("qk_norm", qk_norm, _QK_NORMS),
        ("scale", scale, _SCALES),
        ("implementation", implementation, _IMPLEMENTATIONS),
        ("gate", gate, _GATES),
    ):
        if value not in allowed:
            raise unknown(f"{_OPTIONS}.{name}", value, allowed)
    if window is not None and window < 1:
        raise wrong_value(
            f"{_OPTIONS}.window",
            window,
            "must be 1 or more; a token must at least see itself.",
            code="attention-window",
        )
    if softcap is not None and not softcap > 0:
        raise wrong_value(f"{_OPTIONS}.softcap", softcap, "must be above 0.", code="softcap-not-positive")
    if softcap is not None and implementation == "sdpa":
        raise wrong_value(
            f"{_OPTIONS}.softcap",
            softcap,
            "implementation=sdpa cannot cap logits. Use auto or manual.",
            code="softcap-with-sdpa",
        )
    if multiplier is not None and not multiplier > 0:
        raise wrong_value(f"{_OPTIONS}.multiplier", multiplier, "must be above 0.", code="attention-multiplier")
    if multiplier is not None and (scale != "inverse_sqrt" or qk_norm == "l2"):
        said = f"scale={scale}" if scale != "inverse_sqrt" else f"qk_norm={qk_norm}"
        raise wrong_value(
            f"{_OPTIONS}.multiplier",
            multiplier,
            f"would be ignored, because {said} has a scale of its own.",
            code="multiplier-with-scale",
        )
    if sinks and implementation == "sdpa":
        raise wrong_value(
            f"{_OPTIONS}.sinks",
            sinks,
            "implementation=sdpa has no place for a sink. Use auto or manual.",
            code="sinks-with-sdpa",
        )
    if qk_norm == "l2" and scale != "inverse_sqrt":
        raise wrong_value(
            f"{_OPTIONS}.scale",
            scale,
            "would be ignored, because qk_norm=l2 has a learned scale of its own.",
            code="scale-with-l2",
        )
