"""Records what the launchers' own parsers say of exported configurations, and of the same with a fault in them.

    make validators

Installs torch, Megatron-Core, torchtitan, DeepSpeed and Accelerate (6 GB) into a folder of the cache on first use, lets
the tests draw the configurations, hands each to the parser it is for, and writes the verdicts with the versions to
tests/data/launch/verdicts.jsonl. No GPU is needed.
"""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VERDICTS = ROOT / "tests" / "data" / "launch" / "verdicts.jsonl"
# Megatron-Core's wheels hold its argument parser from this release of Python on.
WANTED = (3, 12)
PACKAGES = [
    "torch==2.15.0",
    "megatron-core[mlm]==0.19.2",
    "torchtitan==0.3.0",
    "accelerate==1.15.0",
    "torchao",
    "transformers",
    "packaging",
    "ninja",
    "py-cpuinfo",
]
# Its setup imports torch, so it is installed after it, without a build environment of its own.
LATER = ["deepspeed==0.19.8"]


def cache():
    named = os.environ.get("MESHWRIGHT_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return (pathlib.Path(named) if named else pathlib.Path(base) / "meshwright") / "validators"


def interpreter():
    """The newest Python at hand that is new enough: named by PYTHON312, on the path, of pyenv, or this one."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))) / "versions"
    found = sorted(pyenv.glob("3.12.*/bin/python3"), reverse=True)
    for candidate in [os.environ.get("PYTHON312"), shutil.which("python3.12"), *map(str, found), sys.executable]:
        if candidate and version(candidate) >= WANTED:
            return candidate
    sys.exit("error: Python 3.12 or later is needed\n\nhint: install it, or set PYTHON312 to its path")


def version(python):
    told = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:2])"], stdout=subprocess.PIPE, text=True)
    return tuple(map(int, told.stdout.split())) if told.returncode == 0 else (0, 0)


def install():
    """The Python that has the packages."""
    folder = cache()
    python = folder / "venv" / "bin" / "python3"
    stamp = folder / "installed.txt"
    wanted = "\n".join(PACKAGES + LATER) + "\n"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"installing into {folder} (6 GB, some minutes)", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([interpreter(), "-m", "venv", folder / "venv"], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    subprocess.run([*pip, *PACKAGES], check=True)
    subprocess.run([*pip, "--no-build-isolation", *LATER], check=True, env=dict(os.environ, DS_BUILD_OPS="0"))
    stamp.write_text(wanted)
    return python


def draw(path):
    cargo = os.environ.get("CARGO", "cargo")
    test = [cargo, "test", "--quiet", "--test", "launch_verdicts", "--", "--ignored", "write_samples"]
    subprocess.run(test, check=True, cwd=ROOT, env=dict(os.environ, SAMPLES=str(path)), stdout=sys.stderr)


def main():
    python = install()
    samples = cache() / "samples.jsonl"
    draw(samples)
    fresh = VERDICTS.with_suffix(".new")
    with open(fresh, "w", encoding="utf-8") as out:
        subprocess.run([python, HERE / "judge.py", samples], check=True, stdout=out)
    os.replace(fresh, VERDICTS)
    print(f"wrote {VERDICTS.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
