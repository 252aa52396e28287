"""Run one function in a process of its own, which dies with its parent. Linux only: it uses prctl.

The child is forked, which costs 0.3 s where a new interpreter that imports torch costs 3 s. So the parent may
import torch, but must compute nothing with it: neither its threads nor a CUDA context survive a fork.
"""

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol, TypeVar

from tqdm import tqdm

T = TypeVar("T")
POLL_SECONDS = 0.5
KILL_POLL_SECONDS = 0.0005
PR_SET_PDEATHSIG = 1  # linux/prctl.h

tqdm.monitor_interval = 0  # its monitor is a thread, and we fork
tqdm.set_lock(threading.RLock())  # its own lock, for several processes, would start one more process


class Progress(Protocol):
    """A number that the child writes and the parent shows: one store to shared memory a step."""

    value: int


class ChildError(RuntimeError):
    """The child ended without an answer; it has printed its traceback, if it had one."""


class KilledError(ChildError):
    """The child was killed: for lack of memory, as a rule."""


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, whose id is given, ends: no orphan goes on."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def in_child(function: Callable[[Progress], T], label: str, steps: int = 0, kill_at: int | None = None) -> T:
    """Return `function(progress)`, run in a forked child, with a bar of `steps` on a terminal.

    With `kill_at` the child is killed (SIGKILL) as soon as it is seen that its progress has come so far.
    ValueError: the child's own, for the user. KilledError: it was killed. ChildError: anything else; its traceback is
    printed.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    progress = context.RawValue("q", 0)
    gc.freeze()  # what the parent has loaded is not the child's garbage to look through, nor to copy in doing so
    child = context.Process(target=_answer, args=(function, progress, sender, os.getpid()))
    child.start()
    sender.close()
    try:
        with tqdm(total=steps, desc=label, unit="step", disable=None if steps else True, leave=False) as bar:
            while not receiver.poll(POLL_SECONDS if kill_at is None else KILL_POLL_SECONDS):
                bar.update(progress.value - bar.n)
                if kill_at is not None and progress.value >= kill_at:
                    child.kill()
        answer, error = receiver.recv()
    except EOFError:
        child.join()
        raise _end_of(child.exitcode, label) from None
    except KeyboardInterrupt:
        child.kill()
        raise
    child.join()
    if error is not None:
        raise error
    return answer  # type: ignore[no-any-return] # what the function returned


def _answer(function: Callable[[Progress], T], progress: Progress, sender: Connection, parent: int) -> None:
    die_with_parent(parent)
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with suppress(OSError):  # a courtesy: if memory runs out, the kernel should end the trial, not the pipeline
        Path("/proc/self/oom_score_adj").write_text("1000")
    message: tuple[T | None, ValueError | None]
    try:
        message = (function(progress), None)
    except ValueError as error:
        message = (None, error)
    sender.send(message)
    sys.stdout.flush()


def _end_of(exitcode: int | None, label: str) -> ChildError:
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        return KilledError(f"{label}: the process was killed by {name}")
    return ChildError(f"{label}: the process ended with exit code {exitcode} and no answer; what it printed is above")
