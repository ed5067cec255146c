"""Wheels of the Python package index, unpacked into the cache folder."""

import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from machine import Failure, cache_folder, run, say, system_packages, works


def pip():
    """A pip that downloads: this python's, one on PATH, that of a fresh virtual environment, or apt's or brew's."""
    venv = cache_folder() / "venv"
    own, fresh = [sys.executable, "-m", "pip"], [str(venv / "bin" / "python"), "-m", "pip"]
    for command in (own, ["pip3"], ["pip"]):
        if works(*command, "--version"):
            return command
    if works(sys.executable, "-m", "venv", "--clear", str(venv)):
        return fresh
    shutil.rmtree(venv, ignore_errors=True)
    system_packages("python3-pip", "python3")
    if works("pip3", "--version"):
        return ["pip3"]
    raise Failure("python3 has no pip", "install it: `python3 -m ensurepip --user`")


def fetch_wheel(requirements, folder):
    """Downloads the first of the requirements that can be had into `folder`."""
    download = [*pip(), "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]
    download += ["--only-binary=:all:", "--dest", str(folder)]
    for requirement in requirements:
        say(f"downloading {requirement}")
        try:
            run(*download, requirement)
            return next(folder.glob("*.whl"))
        except Failure as error:
            failure = error
    raise Failure(f"no wheel of {requirements[0]}: {failure}", "is the Python package index reachable?")


def unpack(wheel, choose, folder):
    """Extracts the members for which `choose` names a path below `folder`; executables stay executable."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            target = choose(member.filename)
            if target is None or member.is_dir():
                continue
            path = folder / target
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as content, open(path, "wb") as file:
                shutil.copyfileobj(content, file)
            path.chmod(0o755 if (member.external_attr >> 16) & 0o111 else 0o644)


def from_wheel(requirements, choose, finish=lambda work, final: None, intact=lambda final: True):
    """The folder of an unpacked wheel; it appears complete or not at all, also when two checkouts race.

    `choose` picks the members, `finish(work, final)` completes the folder `work` before it becomes `final`, and a
    folder from before that is not `intact` is made anew.
    """
    final = cache_folder() / requirements[0].replace("==", "-")
    if final.is_dir():
        if intact(final):
            return final
        shutil.rmtree(final)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as temporary:
        download, work = Path(temporary) / "download", Path(temporary) / "work"
        download.mkdir()
        work.mkdir()
        unpack(fetch_wheel(requirements, download), choose, work)
        finish(work, final)
        try:
            work.rename(final)
        except OSError:
            if not final.is_dir():
                raise
    return final
