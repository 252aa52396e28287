"""What the trials of the image share."""

import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.image.engines import Buildah, Docker

TAG = "ampcheck-tried"


@dataclass(frozen=True)
class Setup:
    """What the trials share: two clones, one to build from, one to mount, which belongs to `user`."""

    engine: Docker | Buildah
    context: Path
    mounted: Path
    user: str
    base: list[str]

    def inside(self, script: str, *options: str, code: int = 0) -> tuple[str, str]:
        """Return what a shell's `script` prints in the image, out and err. RuntimeError for another exit code."""
        done = self.engine.run(TAG, "sh", "-c", script, options=options)
        must(done.returncode == code, f"exit code {done.returncode} of {script}:\n{done.stdout[-3000:]}{done.stderr}")
        return done.stdout, done.stderr

    def on_checkout(self, script: str, mode: str = "rw", code: int = 0) -> tuple[str, str]:
        """Run `script` on the mounted checkout, as its owner."""
        options = ("--user", self.user, "--volume", f"{self.mounted}:/ampcheck:{mode}")
        return self.inside(script, *options, code=code)

    def build(self, tag: str, *options: str) -> float:
        """Return the seconds that a build takes."""
        started = time.monotonic()
        self.engine.build(tag, self.context, *self.base, *options)
        return time.monotonic() - started


def must(fact: object, told: str) -> None:
    """Raise RuntimeError unless `fact` is true."""
    if not fact:
        raise RuntimeError(told)


def only_line(text: str, words: str) -> str:
    """Return the line that begins with `words`. RuntimeError unless there is one."""
    lines = [line for line in text.splitlines() if line.startswith(words)]
    must(len(lines) == 1, f"not one line begins with {words!r}:\n{text}")
    return lines[0]
