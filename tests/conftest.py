"""What holds for every test: it leaves the process as it found it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Test processes run side by side, one to a core: two threads each would wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What whoever starts the tests has set must not decide how wide a table is, what is coloured or which files are found.
_SHELLS_OWN = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "HYDRA_FULL_ERROR"}
for name in _SHELLS_OWN | {name for name in os.environ if name.startswith("GPTLAB_") and name != "GPTLAB_FUZZ"}:
    os.environ.pop(name, None)

# Set by pytest and by torch themselves, and so not a trace of the test.
_PYTEST_OWN = frozenset(
    {"PYTEST_CURRENT_TEST", "PYTEST_VERSION", "TORCHINDUCTOR_CACHE_DIR", "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"}
)


@pytest.fixture(autouse=True)
def _leaves_no_trace() -> Iterator[None]:
    """Fail a test that leaves torch's global random state, the working folder or the environment changed."""
    rng, folder, environ = _torch_rng(), Path.cwd(), _environ()
    yield
    changed = []
    if rng is not None and not rng.equal(_torch_rng()):
        changed.append("torch's global random state (wrap the test's own draws in `with torch.random.fork_rng():`)")
        sys.modules["torch"].set_rng_state(rng)
    if Path.cwd() != folder:
        changed.append(f"the working folder ({folder} -> {Path.cwd()})")
        os.chdir(folder)
    if _environ() != environ:
        names = sorted(name for name, _ in environ.items() ^ _environ().items())
        changed.append(f"the environment ({', '.join(dict.fromkeys(names))})")
        _restore_environ(environ)
    # Each was put back above, so that the next test is not blamed for this one.
    if changed:
        pytest.fail(f"left changed: {'; '.join(changed)}", pytrace=False)


@pytest.fixture
def bf16_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configs in bf16 are planned, and not refused, on a processor that does not have it."""
    import torch

    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)


@pytest.fixture
def scratch_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the test registers is forgotten after it."""
    from gptlab import metrics, registry

    copies = {kind: registry.components(kind) for kind in registry.KINDS}
    monkeypatch.setattr(registry, "_components", copies)
    monkeypatch.setattr(registry, "_registrars", set(registry._registrars))
    declared = dict(metrics.METRICS)
    yield
    metrics.METRICS.clear()
    metrics.METRICS.update(declared)


def _torch_rng() -> Any:
    torch = sys.modules.get("torch")  # not imported here: many tests do without
    return torch.get_rng_state() if torch else None


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _PYTEST_OWN}


def _restore_environ(environ: dict[str, str]) -> None:
    for name in _environ().keys() - environ.keys():
        del os.environ[name]
    os.environ.update(environ)
