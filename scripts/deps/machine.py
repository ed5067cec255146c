"""What this machine offers: commands, compilers, a folder for downloads, packages of its system."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MACOS = sys.platform == "darwin"
LIBRARY_SUFFIX = "dylib" if MACOS else "so"


class Failure(Exception):
    """Why a way is closed, and what would open it."""

    def __init__(self, what, hint=""):
        super().__init__(what)
        self.hint = hint


def say(text):
    print(f"deps: {text}", file=sys.stderr, flush=True)


def run(*command, env=None):
    """Standard output of a command; its error text becomes a Failure."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env)
    except OSError as error:
        raise Failure(f"cannot run {command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        raise Failure(f"{Path(command[0]).name} failed: " + " | ".join(lines[-3:]))
    return done.stdout.strip()


def works(*command):
    try:
        run(*command)
        return True
    except Failure:
        return False


def cache_folder():
    """The user's cache folder, or one in the checkout where the home folder cannot be written."""
    if os.environ.get("MESHWRIGHT_CACHE"):
        choices = [Path(os.environ["MESHWRIGHT_CACHE"]).absolute()]
    else:
        home = os.environ.get("HOME")
        users = os.environ.get("XDG_CACHE_HOME") or home and (f"{home}/Library/Caches" if MACOS else f"{home}/.cache")
        choices = [*([Path(users) / "meshwright"] if users else []), ROOT / ".cache"]
    for folder in choices:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise Failure("no folder for downloads can be written", f"set MESHWRIGHT_CACHE (tried {choices[0]})")


def compiler():
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name.split()[0]):
            return name.split()
    raise Failure("no C compiler found", "install gcc or clang: `apt-get install gcc`, `xcode-select --install`")


def need_cxx_compiler():
    if not any(name and shutil.which(name.split()[0]) for name in (os.environ.get("CXX"), "c++", "g++", "clang++")):
        system_packages("g++", "gcc")


def probe(flags):
    """Links a program to HiGHS with these flags and runs it: the version it reports."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "probe.c", Path(folder) / "probe"
        source.write_text(
            "#include <stdio.h>\nconst char *Highs_version(void);\n"
            "int main(void) { puts(Highs_version()); return 0; }\n"
        )
        run(*compiler(), str(source), "-o", str(program), *flags)
        return run(str(program))


def system_packages(apt, brew):
    """Installs packages with apt (as root) or brew."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        say(f"installing {apt} with apt-get")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "update", "-qq", env=quiet)
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", apt, env=quiet)
    elif shutil.which("brew"):
        say(f"installing {brew} with brew")
        run("brew", "install", "--quiet", brew)
    else:
        what = f"{apt} is not installed, and neither apt-get as root nor brew is there to do it"
        raise Failure(what, f"`apt-get install {apt}`, or the like of your system")


def escape(path):
    """The path as one word of a flag."""
    return str(path).replace(" ", "\\ ")
