"""libclang, which bindgen loads, and cmake, for HiGHS from source."""

import ctypes
import glob
import os
import shutil

from machine import LIBRARY_SUFFIX, Failure, run, say, system_packages, works
from wheels import from_wheel

LIBCLANG = ("libclang==18.1.1", "libclang>=14")
CMAKE = ("cmake==3.31.6", "cmake>=3.18")


def installed_libclang():
    """The folder of an installed libclang, by the places where clang-sys looks too."""
    places = [os.environ.get("LIBCLANG_PATH", "")]
    if works("llvm-config", "--libdir"):
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
        return str(
            from_wheel(
                LIBCLANG,
                choose=lambda path: name if path.endswith("/" + name) else None,
                intact=lambda folder: is_libclang(folder / name),
            )
        )
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
        return str(next(tree.glob("**/bin/cmake")))
    except Failure as error:
        say(f"{error}")
        system_packages("cmake", "cmake")
    return shutil.which("cmake")
