"""Holds the object files of an instruction set to defining nothing that others could link to instead of their own.

An inline function that is not inlined is a weak symbol, and the linker keeps one copy for the whole binary. If that copy
came from a file compiled for AVX-512, a CPU without it would die in code that has nothing to do with kernels.

    isa_isolation_test.py NM OBJECT...
"""

import subprocess
import sys


def weak_symbols(nm, path):
    lines = subprocess.run([nm, "--demangle", path], check=True, capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if len(line.split()) > 2 and line.split()[1] in ("V", "W", "u")]


def main():
    nm, *objects = sys.argv[1:]
    if not objects:
        sys.exit("no object files were given")
    leaks = [f"{path}: {line}" for path in objects for line in weak_symbols(nm, path)]
    print(f"{len(objects)} object files, {len(leaks)} weak symbols", *leaks, sep="\n")
    sys.exit(1 if leaks else 0)


main()
