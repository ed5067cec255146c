"""Makes HiGHS and libclang available to cargo, for `make deps`.

    deps          prepares this checkout; quick when nothing is left to do
    deps cmake    prints the path of a cmake, for builds of HiGHS from source

The first of these that works is taken; MESHWRIGHT_HIGHS=installed|wheel|source insists on one:
  installed   a HiGHS that pkg-config knows
  wheel       the shared library in the PyPI wheel `highsbox`
  source      highs-sys compiles HiGHS and links it statically (minutes)
libclang, which bindgen loads, is an installed one, else the PyPI wheel `libclang`.

Downloads live in the user's cache folder (MESHWRIGHT_CACHE names another), shared by all checkouts. What cargo
must know goes to .cargo/config.toml, so that a plain `cargo build`, `cargo test` or `cargo run` works.
"""

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

from highs import choose_highs
from machine import ROOT, Failure, compiler, escape, need_cxx_compiler, run, say
from tools import cmake, libclang

CONFIG = ROOT / ".cargo" / "config.toml"
MARK = "# Written by `make deps`"


def state():
    """Digest of what a written configuration depends on besides the files it names."""
    parts = [file.read_text(encoding="utf-8") for file in sorted(Path(__file__).parent.glob("*.py"))]
    parts += [os.environ.get(name, "") for name in ("MESHWRIGHT_HIGHS", "MESHWRIGHT_CACHE")]
    parts.append(str(shutil.which("pkg-config")))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def ready():
    """What the last run chose, if it still stands: same scripts, same wishes, all its files in place."""
    try:
        lines = CONFIG.read_text(encoding="utf-8").splitlines()
        notes = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
        stands = notes.get("state") == state() and all(map(os.path.exists, json.loads(notes.get("files", ""))))
    except (OSError, ValueError):
        return None
    return notes.get("choice") if stands else None


def write_config(choice, env, files):
    if CONFIG.exists() and not CONFIG.read_text(encoding="utf-8").startswith(MARK):
        raise Failure(
            f"{CONFIG} exists and is not ours, so it is left alone",
            "move your settings to a parent folder's .cargo/config.toml, or to ~/.cargo/config.toml",
        )
    lines = [f"{MARK} (scripts/deps): edits are lost.", f"# choice: {choice}", f"# state: {state()}", f"# files: {json.dumps(files)}", "", "[env]"]
    for name, value in env.items():
        force = str(name == "PKG_CONFIG_PATH").lower()
        lines.append(f"{name} = {{ value = {json.dumps(value, ensure_ascii=False)}, force = {force} }}")
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.with_suffix(".new").write_text("\n".join(lines) + "\n", encoding="utf-8")
    CONFIG.with_suffix(".new").replace(CONFIG)


def prepare():
    choice = ready()
    if choice is None:
        include = run(*compiler(), "-print-file-name=include")
        choice, env, files = choose_highs()
        clang = libclang()
        env["LIBCLANG_PATH"] = clang
        if os.path.isabs(include):
            env["BINDGEN_EXTRA_CLANG_ARGS"] = f"-idirafter {escape(include)}"
            files.append(include)
        write_config(choice, env, [*files, clang])
    say(f"{choice}; cargo is set up")


def main():
    try:
        if sys.argv[1:] == ["cmake"]:
            need_cxx_compiler()
            print(cmake())
        elif sys.argv[1:]:
            raise Failure(f"unknown argument {sys.argv[1]}", "deps, or deps cmake")
        else:
            prepare()
    except Failure as error:
        print(f"error: {error}", *([f"\nhint: {error.hint}"] if error.hint else []), sep="\n", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
