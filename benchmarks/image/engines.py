"""Build, run and save an image: with Docker where its engine answers, else with Debian's buildah, which needs none."""

import ast
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

Done = subprocess.CompletedProcess[str]


def captured(*command: str) -> Done:
    """Run `command`; its output is text, its failure the caller's to judge."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def output(*command: str) -> str:
    """Return what `command` prints. RuntimeError, with its last lines, if it fails."""
    done = captured(*command)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RuntimeError(f"{' '.join(command)}\n{last}\nexit code {done.returncode}")
    return done.stdout


@dataclass(frozen=True)
class Docker:
    """An engine that keeps its images itself."""

    name = "docker"
    from_nothing = ("--no-cache",)

    def build(self, tag: str, context: Path, *options: str) -> None:
        """Build the Dockerfile of `context`, or what options name."""
        output("docker", "build", "--tag", tag, *options, str(context))

    def run(self, tag: str, *command: str, options: tuple[str, ...] = ()) -> Done:
        """Run `command`, or the image's own, in a new container; --user and --volume are options."""
        return captured("docker", "run", "--rm", "--init", *options, tag, *command)

    def save(self, tag: str, to: Path) -> None:
        """Write the image as a tar file."""
        output("docker", "save", "--output", str(to), tag)

    def base(self) -> list[str]:
        """Return no option: the Dockerfile's own base can be had."""
        return []


@dataclass(frozen=True)
class Buildah:
    """Commands without a daemon, with their images in `folder`; containers are a chroot in the host's network."""

    folder: Path
    name = "buildah"
    from_nothing = ()  # the folder is new; and with --no-cache nothing would be found by a later build

    def build(self, tag: str, context: Path, *options: str) -> None:
        """Build as Docker does, with the host's settings of pip."""
        pip = pip_options(self.folder / "pip", captured(sys.executable, "-m", "pip", "config", "list").stdout)
        self._buildah("build", "--isolation", "chroot", "--layers", "--tag", tag, *pip, *options, str(context))

    def run(self, tag: str, *command: str, options: tuple[str, ...] = ()) -> Done:
        """Run as Docker does; buildah leaves the image's entry point and command to its caller."""
        container = self._buildah("from", "--pull-never", tag).strip()
        config = json.loads(self._buildah("inspect", container))["OCIv1"]["config"]
        argv = [*config["Entrypoint"], *(command or config["Cmd"])]
        try:
            return captured(*self._command("run", "--isolation", "chroot", *options, container, "--", *argv))
        finally:
            self._buildah("rm", container)

    def save(self, tag: str, to: Path) -> None:
        """Write the image as Docker does."""
        self._buildah("push", tag, f"docker-archive:{to}")

    def base(self) -> list[str]:
        """Make this host's own distribution, minimal, an image, and return the build's option that names it."""
        release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
        tar = self.folder / "base.tar"
        output("mmdebstrap", "--variant=minbase", "--include=ca-certificates", release["VERSION_CODENAME"], str(tar))
        container = self._buildah("from", "scratch").strip()
        self._buildah("add", "--quiet", container, str(tar), "/")
        self._buildah("commit", "--rm", container, "localhost/base")
        return ["--build-arg", "BASE=localhost/base"]

    def _command(self, *arguments: str) -> list[str]:
        return ["buildah", "--root", f"{self.folder}/images", "--runroot", f"{self.folder}/run", *arguments]

    def _buildah(self, *arguments: str) -> str:
        return output(*self._command(*arguments))


def pip_options(folder: Path, listed: str) -> list[str]:
    """Return what a build needs to use the host's settings of pip, `listed` by pip config list.

    Files and folders that they name appear in /srv: nothing of the host's gets into a layer, not even its paths.
    """
    folder.mkdir(exist_ok=True)
    settings, volumes = {}, ["--volume", f"{folder}:/srv:ro"]
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):  # the environment's count
        key, _, quoted = line.partition("=")
        words = [_shared(word, folder, volumes) for word in ast.literal_eval(quoted).split()]
        settings[key.rpartition(".")[2]] = " ".join(words)
    conf = folder / "pip.conf"
    conf.write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items()))
    return [*volumes, "--secret", f"id=pip.conf,src={conf}"]


def _shared(word: str, folder: Path, volumes: list[str]) -> str:
    """Return `word` as it reads inside if it is a path of the host, which is then shared; else as it is."""
    path = Path(word.removeprefix("file://"))
    if not path.is_absolute() or not path.exists():
        return word
    inside = folder / str(len(list(folder.iterdir())))
    if path.is_file():
        shutil.copy(path, inside)
        return f"/srv/{inside.name}"
    inside.mkdir()
    if not word.startswith("file://"):
        volumes += ["--volume", f"{path}:/srv/{inside.name}:ro"]
        return f"/srv/{inside.name}"
    volumes += ["--volume", f"{path.parent}:/srv/{inside.name}:ro"]  # an index is of use with the files beside it
    return f"file:///srv/{inside.name}/{path.name}"


def engine(folder: Path) -> Docker | Buildah:
    """Return the engine that there is; `folder` holds what it needs. RuntimeError if there is none."""
    if shutil.which("docker") and captured("docker", "info").returncode == 0:
        return Docker()
    missing = [name for name in ("buildah", "mmdebstrap") if not shutil.which(name)]
    if missing:
        raise RuntimeError(f"no Docker engine answers, and {' and '.join(missing)} of Debian is missing; install one")
    return Buildah(folder)
