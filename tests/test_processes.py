"""A child answers, fails with a name, or dies with its parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ampcheck.processes import ChildError, KilledError, Progress, in_child
from tests.helpers import ROOT


def test_the_answer_comes_from_another_process() -> None:
    """What the function returns comes back, from a process that is gone afterwards."""
    pid = in_child(lambda _: os.getpid(), "a child")

    assert pid != os.getpid()
    assert not psutil.pid_exists(pid)


def test_what_a_child_changes_stays_with_it() -> None:
    """Settings of one trial do not leak into the next."""
    in_child(lambda _: os.environ.update(AMPCHECK_LEAK="1"), "a child")

    assert "AMPCHECK_LEAK" not in os.environ


def test_the_users_errors_cross_the_border() -> None:
    """A ValueError is the parent's to tell, in one line."""

    def wrong(_: Progress) -> None:
        raise ValueError("train.lr: got -1")

    with pytest.raises(ValueError, match=r"^train\.lr: got -1$"):
        in_child(wrong, "a child")


def test_a_killed_child_is_named_with_its_signal() -> None:
    """The kernel's out-of-memory killer leaves no answer; the parent does not wait for ever."""
    with pytest.raises(KilledError, match="train fp32: the process was killed by SIGKILL"):
        in_child(lambda _: os.kill(os.getpid(), signal.SIGKILL), "train fp32")


def test_any_other_failure_is_ours(capfd: pytest.CaptureFixture[str]) -> None:
    """The child prints its traceback, the parent stops."""

    def broken(_: Progress) -> None:
        raise KeyError("lost")

    with pytest.raises(ChildError, match="ended with exit code 1 and no answer"):
        in_child(broken, "a child")

    assert "KeyError: 'lost'" in capfd.readouterr().err


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    """SIGKILL of the parent, which can't be caught, ends the child as well."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = f"""
import os, signal, sys
from ampcheck.processes import in_child
def child(_):
    with open({str(fifo)!r}, "w") as file:
        print(os.getpid(), file=file)
    signal.pause()
in_child(child, "a child")
"""
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT / "src")
    child = psutil.Process(int(fifo.read_text()))
    parent.kill()
    parent.wait()
    gone, alive = psutil.wait_procs([child], timeout=30)

    assert (gone, alive) == ([child], [])
