"""What is said of the image, tried; each trial returns figures, and raises RuntimeError for what does not hold."""

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.image.setup import TAG, Setup, must, only_line

AGAIN, WITH_TESTS = "ampcheck-tried-again", "ampcheck-tried-tests"
EDIT = "python -m ampcheck.edit"
SIZES = "sizes.batch_size=8 sizes.in_size=16 sizes.out_size=12 sizes.num_layers=2"
TINY = f"{EDIT} {SIZES} data.num_batches=4 drill.kills=1"
SMOKE = ["tests/test_params.py", "tests/test_identity.py", "tests/test_checkpoint.py", "tests/test_resume.py"]
REBUILD_SECONDS = 20
PACKAGES = "dpkg-query -W -f '${Package}==${Version}\\n' && pip list --format freeze"
CACHES = "/etc/pip.conf /root/.cache /tmp/* /var/lib/apt/lists/* /var/cache/apt/* /mnt/* /srv/*"


def built(setup: Setup) -> Iterator[str]:
    """Built from nothing; then again after an edit of the source, from the layers that are left."""
    yield f"build: {setup.build(TAG, *setup.engine.from_nothing):.0f} s"
    edited = setup.context / "src/ampcheck/__init__.py"
    edited.write_text(edited.read_text() + "\n# edited\n")
    seconds = setup.build(TAG)
    yield f"build after an edit of the source: {seconds:.1f} s"
    must(seconds < REBUILD_SECONDS, f"an edit of the source must be built in {REBUILD_SECONDS} s")


def layers(setup: Setup) -> Iterator[str]:
    """Sizes of the layers, unpacked, with the step that made each."""
    path = setup.context.parent / "image.tar"
    setup.engine.save(TAG, path)
    with tarfile.open(path) as tar:
        stored = _json(tar, "manifest.json")[0]
        steps = _json(tar, stored["Config"])["history"]
        sizes = [tar.getmember(name).size for name in stored["Layers"]]
    path.unlink()
    yield f"{sum(sizes) / 1e6:.0f} MB in {len(sizes)} layers"
    for step, size in zip([step for step in steps if not step.get("empty_layer")], sizes, strict=True):
        yield f"{size / 1e6:8.1f} MB  {' '.join(step['created_by'].split())[:90]}"


def _json(tar: tarfile.TarFile, name: str) -> Any:  # noqa: ANN401
    file = tar.extractfile(name)
    return json.load(file) if file else None


def same_packages(setup: Setup) -> Iterator[str]:
    """Two builds of one commit have the same packages, and all of Python's have their version in constraints.txt."""
    setup.build(AGAIN, "--no-cache")
    lists = [setup.engine.run(tag, "sh", "-c", PACKAGES).stdout.splitlines() for tag in (TAG, AGAIN)]
    must(lists[0] and lists[0] == lists[1], f"two builds differ: {set(lists[0]) ^ set(lists[1])}")
    pinned = (setup.context / "constraints.txt").read_text().lower().replace("-", "_").splitlines()
    listed = setup.inside("pip list --format freeze")[0].lower().replace("-", "_").splitlines()
    loose = [line for line in listed if line.split("+")[0] not in pinned and not line.startswith("pip==")]
    must(not loose, f"constraints.txt lacks {', '.join(loose)}")
    yield f"two builds: the same {len(lists[0])} packages, {len(listed)} of them Python's, each with its version pinned"


def contents(setup: Setup) -> Iterator[str]:
    """Not root; the commands that users expect; no compiler, cache or secret."""
    found = setup.inside("id -u; which python git dvc; python --version; dvc --version")[0].splitlines()
    left = setup.inside(f"which cc gcc g++ make; ls -d {CACHES} .git dvc.lock 2>&- || :")[0]
    must(int(found[0]) > 0 and len(found) == 6, f"expected a user, three commands and two versions: {found}")
    must(not left, f"not wanted: {left}")
    yield f"user {', '.join(found)}; no compiler, no cache, no secret"


def copied(setup: Setup) -> Iterator[str]:
    """The copy in the image, without git and without a GPU: a report; a GPU that is asked for is missed in one line."""
    out, err = setup.inside(f"{TINY} && dvc repro && cat reports/report.md")
    yield from out.partition("\n# ")[2].split("\n\n")[1].splitlines()
    yield only_line(err, "ampcheck: ")
    yield only_line(out, "on cpu")
    out, err = setup.inside(f"{EDIT} device=cuda && dvc repro", code=255)  # DVC's own for a stage that fails
    yield only_line(out + err, "params.yaml: device: ")


def mounted(setup: Setup) -> Iterator[str]:
    """A checkout of another user: results are that user's, a second run makes nothing, git and DVC's links work."""
    setup.on_checkout(f"{TINY} && dvc repro")
    before = made(setup.mounted)
    owners = {f"{path.stat().st_uid}:{path.stat().st_gid}" for path in setup.mounted.rglob("*")}
    must(owners == {setup.user} and "reports/report.md" in before, f"files belong to {owners}")
    yield f"report made on a mounted checkout as user {setup.user}, who owns every file"
    out, err = setup.on_checkout("dvc repro")
    ran = re.findall(r"Running stage '(.*)'", out)
    must(made(setup.mounted) == before and not err.count("ampcheck:"), f"a second run changed results:\n{out}{err}")
    yield f"second dvc repro: nothing made again (always run: {', '.join(ran)})"
    out, _ = setup.on_checkout("rm data/fixed.safetensors && dvc checkout && ls data && dvc params diff")
    must("fixed.safetensors" in out and "sizes.in_size" in out, f"dvc checkout or params diff failed:\n{out}")
    yield "data comes back from DVC's cache; dvc params diff works"


def refused_mounts(setup: Setup) -> Iterator[str]:
    """Read-only, of somebody else, and without .git: a line each; git itself accepts a stranger's checkout."""
    yield only_line(setup.on_checkout("dvc repro", mode="ro", code=1)[1], "ampcheck: ")
    options = ("--volume", f"{setup.mounted}:/ampcheck")
    yield only_line(setup.inside("dvc repro", "--user", "4321:4321", *options, code=1)[1], "ampcheck: ")
    must(setup.inside("git log -1 --format=%h && dvc params diff", "--user", "0:0", *options)[0], "git says nothing")
    yield "root on that checkout: git and dvc params diff accept it"
    (setup.mounted / ".git").rename(setup.mounted.parent / "git")
    yield only_line(setup.on_checkout("dvc repro")[1], "ampcheck: ")


def made(folder: Path) -> dict[str, int]:
    """Return when each result was written, by name."""
    paths = [path for name in ("data", "results", "reports") for path in (folder / name).rglob("*") if path.is_file()]
    # Facts of the machine are looked at in every run, and written only if they have changed.
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in paths}


def smoke(setup: Setup) -> Iterator[str]:
    """A part of the tests, inside, not as root."""
    options = ["--file", str(setup.context / "container/tests.Dockerfile"), "--build-arg", f"IMAGE={TAG}"]
    setup.engine.build(WITH_TESTS, setup.context, *options)
    done = setup.engine.run(WITH_TESTS, "pytest", "-q", "-p", "no:cacheprovider", *SMOKE)
    must(done.returncode == 0, done.stdout[-3000:] + done.stderr)
    yield done.stdout.splitlines()[-1]
