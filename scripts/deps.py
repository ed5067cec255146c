#!/usr/bin/env python3
"""Makes HiGHS and libclang available to cargo, for `make deps`.

    deps.py           prepares this checkout; quick when nothing is left to do
    deps.py cmake     prints the path of a cmake, for builds of HiGHS from source

The first of these that works is taken; MESHWRIGHT_HIGHS=installed|wheel|source insists on one:
  installed   a HiGHS that pkg-config knows
  wheel       the shared library in the PyPI wheel `highsbox`
  source      highs-sys compiles HiGHS and links it statically (minutes)
libclang, which bindgen loads, is an installed one, else the PyPI wheel `libclang`.

Downloads live in the user's cache folder (MESHWRIGHT_CACHE names another), shared by all checkouts. What cargo
must know goes to .cargo/config.toml, so that a plain `cargo build`, `cargo test` or `cargo run` works.
"""

import ctypes
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / ".cargo" / "config.toml"
MARK = "# Written by `make deps` (scripts/deps.py): edits are lost."
MINIMUM_HIGHS = "1.7.0"
# The version tried, and what may stand in for it where it is not to be had.
HIGHSBOX = ("highsbox==1.15.1", "highsbox>=1.7")
LIBCLANG = ("libclang==18.1.1", "libclang>=14")
CMAKE = ("cmake==3.31.6", "cmake>=3.18")
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


def cache_folder():
    """The user's cache folder, or one in the checkout where the home folder cannot be written."""
    if os.environ.get("MESHWRIGHT_CACHE"):
        choices = [Path(os.environ["MESHWRIGHT_CACHE"]).absolute()]
    else:
        home = Path(os.environ.get("HOME") or "/nonexistent")
        system = home / "Library" / "Caches" if MACOS else Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
        choices = [system / "meshwright", ROOT / ".cache"]
    for folder in choices:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise Failure("no folder for downloads can be written", f"set MESHWRIGHT_CACHE (tried {choices[0]})")


# Compilers -------------------------------------------------------------------------------------------------


def compiler():
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name.split()[0]):
            return name.split()
    raise Failure("no C compiler found", "install gcc or clang: `apt-get install gcc`, `xcode-select --install`")


def cxx_compiler():
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name.split()[0]):
            return
    raise Failure("no C++ compiler found, and HiGHS must be compiled", "install one: `apt-get install g++`")


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


# Wheels ----------------------------------------------------------------------------------------------------


def pip():
    """A pip that downloads: this python's, one on PATH, or that of a fresh virtual environment."""
    for command in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"]):
        try:
            run(*command, "--version")
            return command
        except Failure:
            continue
    venv = cache_folder() / "venv"
    try:
        run(sys.executable, "-m", "venv", "--clear", str(venv))
    except Failure as error:
        raise Failure(
            "python3 has no pip", "install it: `apt-get install python3-pip`, or `python3 -m ensurepip --user`"
        ) from error
    return [str(venv / "bin" / "python"), "-m", "pip"]


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


def from_wheel(requirements, choose, finish=lambda work, final: None):
    """The folder of an unpacked wheel; it appears complete or not at all, also when two checkouts race."""
    final = cache_folder() / requirements[0].replace("==", "-")
    if final.is_dir():
        return final
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


# libclang and cmake ----------------------------------------------------------------------------------------


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
        raise Failure("neither apt-get as root nor brew is at hand", f"install it by hand: `apt-get install {apt}`")


def installed_libclang():
    """The folder of an installed libclang, by the places where clang-sys looks too."""
    places = [os.environ.get("LIBCLANG_PATH", "")]
    if shutil.which("llvm-config"):
        places.append(run("llvm-config", "--libdir"))
    places += sorted(glob.glob("/usr/lib/llvm-*/lib"), reverse=True)
    places += ["/usr/lib64", "/usr/lib", "/usr/local/lib", *glob.glob("/usr/lib/*-linux-gnu")]
    places += ["/opt/homebrew/opt/llvm/lib", "/usr/local/opt/llvm/lib"]
    places += ["/Library/Developer/CommandLineTools/usr/lib"]
    for place in filter(None, places):
        files = glob.glob(f"{place}/libclang.{LIBRARY_SUFFIX}*") + glob.glob(f"{place}/libclang-[0-9]*.so*")
        if any(map(is_libclang, files)):
            return place
    return None


def is_libclang(file):
    """Whether the file can be loaded and is libclang: links may dangle."""
    try:
        return hasattr(ctypes.CDLL(file), "clang_getClangVersion")
    except OSError:
        return False


def libclang():
    place = installed_libclang()
    if place:
        return place
    name = f"libclang.{LIBRARY_SUFFIX}"
    try:
        return str(from_wheel(LIBCLANG, lambda path: name if path.endswith("/" + name) else None))
    except Failure as error:
        say(f"{error}")
        system_packages("libclang-dev", "llvm")
    place = installed_libclang()
    if not place:
        raise Failure("libclang is not to be found", "set LIBCLANG_PATH to the folder of libclang.so")
    return place


def cmake():
    """The path of a cmake: the installed one, else the wheel's, else one that apt or brew brings."""
    if shutil.which("cmake"):
        return shutil.which("cmake")
    try:
        tree = from_wheel(CMAKE, lambda path: path.partition("cmake/data/")[2] or None)
        return str(tree / "bin" / "cmake") if not MACOS else run("find", str(tree), "-path", "*/bin/cmake")
    except Failure as error:
        say(f"{error}")
        system_packages("cmake", "cmake")
    return shutil.which("cmake")


# The three ways to HiGHS -----------------------------------------------------------------------------------


def installed_highs():
    """An installed HiGHS: nothing is left to tell cargo but where pkg-config looked."""
    if not shutil.which("pkg-config"):
        raise Failure("no pkg-config")
    run("pkg-config", "--atleast-version", MINIMUM_HIGHS, "highs")
    version = probe(run("pkg-config", "--libs", "highs").split())
    path = os.environ.get("PKG_CONFIG_PATH")
    env = {"PKG_CONFIG_PATH": path} if path else {}
    folder = run("pkg-config", "--variable=pcfiledir", "highs")
    return f"HiGHS {version}, installed", env, [f"{folder}/highs.pc"]


def highsbox_member(path):
    """Where a file of the highsbox wheel goes: headers, library and licence; the BLAS is not needed."""
    inside = path.partition("/highs_dist/")[2]
    if inside.startswith("include/highs"):
        return inside
    if inside in (f"lib/libhighs.{LIBRARY_SUFFIX}", f"lib64/libhighs.{LIBRARY_SUFFIX}"):
        return f"lib/libhighs.{LIBRARY_SUFFIX}"
    return "LICENSE.txt" if inside.endswith("LICENSE.txt") else None


def make_linkable(work, final):
    """Prepares what the linker sees.

    A program must find the library wherever the program lies and whatever RUSTFLAGS say, doctests included. So it is
    linked to a stand-in without code whose name (soname) is the absolute path of the real library: the loader takes
    a name with a slash as it is. On macOS the library itself is given that name.
    """
    library = f"lib/libhighs.{LIBRARY_SUFFIX}"
    if not (work / library).is_file():
        raise Failure(f"the highsbox wheel has no {library}")
    link = work / "link"
    link.mkdir()
    if MACOS:
        run("install_name_tool", "-id", str(final / library), str(work / library))
        run("codesign", "--force", "--sign", "-", str(work / library))
        (link / "libhighs.dylib").symlink_to(f"../{library}")
    else:
        header = (work / "include/highs/interfaces/highs_c_api.h").read_text()
        names = sorted({word for word in split_words(header) if word.startswith("Highs_")})
        (link / "highs.c").write_text("".join(f"void {name}(void) {{}}\n" for name in names))
        soname = f"-Wl,-soname,{final / library}"
        run(*compiler(), "-shared", "-fPIC", "-nostdlib", soname, str(link / "highs.c"), "-o", str(link / "libhighs.so"))
    write_pkg_config(work, final)


def split_words(text):
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()


def write_pkg_config(work, final):
    """highs.pc with this machine's paths, and a stand-in that answers for machines without pkg-config."""
    header = split_words((work / "include/highs/HConfig.h").read_text())
    numbers = [header[header.index(f"HIGHS_VERSION_{part}") + 1] for part in ("MAJOR", "MINOR", "PATCH")]
    version, include, link = ".".join(numbers), final / "include/highs", final / "link"
    folder = work / "pkgconfig"
    folder.mkdir()
    (folder / "highs.pc").write_text(
        f"libdir={escape(link)}\nincludedir={escape(include)}\n\n"
        f"Name: HiGHS\nDescription: Linear optimization software\nVersion: {version}\n"
        "Libs: -L${libdir} -lhighs\nCflags: -I${includedir}\n"
    )
    script = folder / "pkg-config"
    script.write_text(
        "#!/bin/sh\n# Answers for highs alone, where no pkg-config is installed.\n"
        f'case " $* " in\n*" --modversion "*" highs "*) echo {version} ;;\n'
        f"*\" highs \"*) cat <<'FLAGS'\n-I{escape(include)} -L{escape(link)} -lhighs\nFLAGS\n;;\n*) exit 1 ;;\nesac\n"
    )
    script.chmod(0o755)


def escape(path):
    return str(path).replace(" ", "\\ ")


def wheel_highs():
    folder = cache_folder() / HIGHSBOX[0].replace("==", "-")
    if folder.is_dir() and escape(folder) not in (folder / "pkgconfig" / "highs.pc").read_text():
        shutil.rmtree(folder)  # moved with the checkout: the paths inside are those of the old place
    folder = from_wheel(HIGHSBOX, highsbox_member, make_linkable)
    version = probe([f"-L{folder / 'link'}", "-lhighs"])
    places = [str(folder / "pkgconfig"), os.environ.get("PKG_CONFIG_PATH", "")]
    env = {"PKG_CONFIG_PATH": ":".join(dict.fromkeys(filter(None, ":".join(places).split(":"))))}
    if not shutil.which("pkg-config"):
        env["PKG_CONFIG"] = str(folder / "pkgconfig" / "pkg-config")
    return f"HiGHS {version} from the highsbox wheel", env, [str(folder / "lib" / f"libhighs.{LIBRARY_SUFFIX}")]


def source_highs():
    cxx_compiler()
    path = cmake()
    env = {"CMAKE": path, "HIGHS_NO_PKG_CONFIG": "1"}
    return "HiGHS from source: the first build takes about ten minutes", env, [path]


WAYS = {"installed": installed_highs, "wheel": wheel_highs, "source": source_highs}


def choose_highs():
    wanted = os.environ.get("MESHWRIGHT_HIGHS")
    if wanted and wanted not in WAYS:
        raise Failure(f"MESHWRIGHT_HIGHS={wanted} is not a way to HiGHS", f"one of {', '.join(WAYS)}")
    if wanted:
        return WAYS[wanted]()
    reasons = []
    for name, way in WAYS.items():
        try:
            return way()
        except Failure as error:
            reasons.append(f"{name}: {error}" + (f" ({error.hint})" if error.hint else ""))
            if name != "installed":
                say(reasons[-1])
    raise Failure("no way to HiGHS works:\n  " + "\n  ".join(reasons), "any one of them is enough")


# What cargo must know --------------------------------------------------------------------------------------


def state():
    """Digest of what a written configuration depends on besides the files it names."""
    parts = [Path(__file__).read_bytes().hex()]
    parts += [os.environ.get(name, "") for name in ("MESHWRIGHT_HIGHS", "MESHWRIGHT_CACHE")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def ready():
    """What the last run chose, if it still stands: same script, same wishes, all its files in place."""
    try:
        lines = CONFIG.read_text().splitlines()
    except OSError:
        return None
    notes = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    files = json.loads(notes.get("files", "[]"))
    if MARK in lines and notes.get("state") == state() and all(os.path.exists(file) for file in files):
        return notes.get("choice")
    return None


def write_config(choice, env, files):
    if CONFIG.exists() and MARK not in CONFIG.read_text():
        raise Failure(
            f"{CONFIG} exists and is not ours, so it is left alone",
            "move your settings to a parent folder's .cargo/config.toml, or to ~/.cargo/config.toml",
        )
    lines = [MARK, f"# choice: {choice}", f"# state: {state()}", f"# files: {json.dumps(files)}", "", "[env]"]
    for name, value in env.items():
        force = name == "PKG_CONFIG_PATH"
        value = json.dumps(value)
        lines.append(f"{name} = " + (f"{{ value = {value}, force = true }}" if force else value))
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.with_suffix(".new").write_text("\n".join(lines) + "\n")
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
            cxx_compiler()
            print(cmake())
        elif sys.argv[1:]:
            raise Failure(f"unknown argument {sys.argv[1]}", "deps.py, or deps.py cmake")
        else:
            prepare()
    except Failure as error:
        print(f"error: {error}", *([f"\nhint: {error.hint}"] if error.hint else []), sep="\n", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
