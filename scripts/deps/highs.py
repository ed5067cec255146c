"""The three ways to HiGHS: each answers with what it is, what cargo must know, and the files it stands on."""

import os
import shutil

from machine import (
    LIBRARY_SUFFIX, MACOS, Failure, compiler, escape, need_cxx_compiler, probe, run, say, works,
)
from tools import cmake
from wheels import from_wheel

MINIMUM_HIGHS = "1.7.0"
# The version tried, and what may stand in for it where it is not to be had.
HIGHSBOX = ("highsbox==1.15.1", "highsbox>=1.7")


def installed_highs():
    """An installed HiGHS: nothing is left to tell cargo but where pkg-config looked."""
    if not shutil.which("pkg-config"):
        raise Failure("no pkg-config")
    if not works("pkg-config", "--atleast-version", MINIMUM_HIGHS, "highs"):
        raise Failure(f"pkg-config knows no HiGHS of version {MINIMUM_HIGHS} or later")
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


def is_linkable(folder):
    """Whether all is in place, and the folder too: it may have moved with the checkout."""
    parts = [f"lib/libhighs.{LIBRARY_SUFFIX}", f"link/libhighs.{LIBRARY_SUFFIX}", "pkgconfig/highs.pc"]
    there = all((folder / part).is_file() for part in parts)
    return there and escape(folder) in (folder / "pkgconfig/highs.pc").read_text()


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


def wheel_highs():
    folder = from_wheel(HIGHSBOX, highsbox_member, make_linkable, is_linkable)
    version = probe([f"-L{folder / 'link'}", "-lhighs"])
    places = [str(folder / "pkgconfig"), os.environ.get("PKG_CONFIG_PATH", "")]
    env = {"PKG_CONFIG_PATH": ":".join(dict.fromkeys(filter(None, ":".join(places).split(":"))))}
    if not shutil.which("pkg-config"):
        env["PKG_CONFIG"] = str(folder / "pkgconfig" / "pkg-config")
    files = [str(folder / part / f"libhighs.{LIBRARY_SUFFIX}") for part in ("lib", "link")]
    return f"HiGHS {version} from the highsbox wheel", env, files


def source_highs():
    need_cxx_compiler()
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
            chosen = way()
        except Failure as error:
            reasons.append(f"{name}: {error}" + (f" ({error.hint})" if error.hint else ""))
            continue
        for reason in reasons[1:]:
            say(reason)
        return chosen
    raise Failure("no way to HiGHS works:\n  " + "\n  ".join(reasons), "any one of them is enough")
