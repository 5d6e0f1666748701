import os
import subprocess
import sys

import pytest
import torch

from gptlab import streams
from gptlab.streams import forked, generator, stream_seed


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), 1156702218591458640),
        (("data",), 5024701124962766659),
        (("init", "out_head.weight"), 9205848844316634271),
        (("dropout", 3), 3956547355667308717),
        (("größe",), 6410260013406725589),
    ],
)
def test_the_map_from_names_to_seeds_never_changes(names: tuple[str | int, ...], expected: int) -> None:
    assert stream_seed(123, *names) == expected


def test_different_names_are_different_streams() -> None:
    keys: list[tuple[str | int, ...]] = [
        (),
        ("a",),
        ("a", "b"),
        ("ab",),
        ("b", "a"),
        ("1",),
        (1,),
        ("a", ""),
        ("1,2",),
        (1, 2),
    ]
    seeds = {stream_seed(seed, *names) for seed in (0, 1, 2**63 - 1) for names in keys}
    assert len(seeds) == 3 * len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seeds_do_not_depend_on_the_hash_seed_of_python() -> None:
    code = "from gptlab.streams import stream_seed; print(stream_seed(7, 'data', 1))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": n}, capture_output=True, text=True
        ).stdout
        for n in ("0", "1")
    }
    assert printed == {f"{stream_seed(7, 'data', 1)}\n"}


def test_generators_start_afresh_and_leave_the_global_one_alone() -> None:
    before = torch.get_rng_state()
    first = torch.rand(4, generator=generator(1, "data"))
    assert torch.equal(first, torch.rand(4, generator=generator(1, "data")))
    assert not torch.equal(first, torch.rand(4, generator=generator(1, "dropout")))
    assert torch.equal(before, torch.get_rng_state())


def test_forked_draws_from_the_stream_and_restores_the_global_state() -> None:
    before = torch.get_rng_state()
    with forked(1, "dropout"):
        inside = torch.rand(3)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(inside, torch.rand(3, generator=generator(1, "dropout")))


def test_forked_restores_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="shape"), forked(1, "dropout"):
        torch.rand(3).view(2)
    assert torch.equal(before, torch.get_rng_state())


def test_what_is_kept_makes_room_for_what_is_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_KEPT", 10)
    assert streams.kept("a", 1) is None
    with streams.keeping():
        a, b = streams.kept("a", 4), streams.kept("b", 4)
        assert a is not None and b is not None and a is not b
        assert streams.kept("a", 4) is a  # used again: b is the oldest now
        assert streams.kept("large", 11) is None
        c = streams.kept("c", 4)
        assert streams.kept("a", 4) is a and streams.kept("c", 4) is c
        assert streams.kept("b", 4) is not b
    assert streams.kept("a", 1) is None
