"""What a refusal has to be: its code and its facts. Its sentence stands in tests/golden/messages.txt alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from gptlab import cli
from gptlab.errors import GptlabError

LONGEST = 3  # lines of a message


def check_refusal(error: GptlabError, code: str, /, **facts: object) -> None:
    """Fail unless `error` has this code, these facts among its own, and a short message."""
    __tracebackhide__ = True
    assert (error.code, {name: error.facts.get(name) for name in facts}) == (code, facts), str(error)
    assert 1 <= len(str(error).splitlines()) <= LONGEST and "Traceback" not in str(error)


@contextmanager
def refused(code: str, /, **facts: object) -> Iterator[pytest.ExceptionInfo[GptlabError]]:
    """The body must be refused with this code, and at least these facts."""
    __tracebackhide__ = True
    with pytest.raises(GptlabError) as caught:
        yield caught
    check_refusal(caught.value, code, **facts)


def refused_command(
    capsys: pytest.CaptureFixture[str], /, *arguments: object, code: str, **facts: object
) -> GptlabError:
    """Run a command that must be refused: exit code 2, nothing on stdout, the error's message last on stderr."""
    __tracebackhide__ = True
    raised: list[GptlabError] = []
    dispatch = cli.dispatch

    def watched(words: list[str]) -> int:
        try:
            return dispatch(words)
        except GptlabError as error:
            raised.append(error)
            raise

    capsys.readouterr()
    with patch.object(cli, "dispatch", watched):
        exit_code = cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert (exit_code, out, len(raised)) == (2, "", 1), err
    assert err.endswith(f"gptlab: {raised[0]}\n") and "Traceback" not in err
    check_refusal(raised[0], code, **facts)
    return raised[0]
