#!/usr/bin/env python3
"""Holds every #include of the project against layers.json: who may include whom.

  tools/layers/check_layers.py [ROOT]     exit 1 and one line a violation, or 0
  tools/layers/check_layers.py --self_test   the samples must pass and fail as their names say
"""
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
SOURCES = {".h", ".cc", ".cu", ".cuh"}


def included_paths(text):
    """(line number, path) of each include line."""
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def allowed(rules, folder, path):
    targets = [folder, *rules["includes"][folder]]
    return any(path == target or path.startswith(target + "/") for target in targets)


def may_include_engine(file, path):
    """An engine header: by its own .cc, by main.cc and by the file named like the folder that composes it."""
    engine = pathlib.PurePosixPath(path)
    if str(engine.parent) != str(file.parent):
        return False
    return file.stem in (engine.stem, "main", file.parent.name)


def violations(rules, file, text):
    """Messages for one file; `file` is relative to the root."""
    folder = file.parts[0]
    free = folder in rules["anything"]
    for line, path in included_paths(text):
        where = f"{file}:{line}: "
        for kind in ("generated_headers", "device_headers"):
            rule = rules[kind]
            if folder != "tests" and re.search(rule["include_pattern"], path) and not re.search(
                    rule["only_in_files"], str(file)):
                yield f"{where}{path} may only be included by files like {rule['only_in_files']}"
        if free:
            continue
        top = path.split("/")[0]
        if "/" in path and (top in rules["includes"] or top in rules["anything"]):
            if not allowed(rules, folder, path):
                yield f"{where}{folder}/ must not include {path}"
            elif re.search(rules["engine_headers"]["include_pattern"], path) and not may_include_engine(file, path):
                yield f"{where}nothing imports an engine ({path}) but its own .cc, main.cc and its folder's composition"


def check(root, rules):
    found, checked = [], 0
    folders = [*rules["includes"], *rules["anything"]]
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCES and path.is_file() and "layers/samples" not in path.as_posix():
                checked += 1
                found += violations(rules, path.relative_to(root), path.read_text())
    return found, checked


def self_test(rules):
    """Each sample's first line says which file it pretends to be, and whether it passes."""
    wrong = 0
    for sample in sorted((HERE / "samples").glob("*.sample")):
        head, text = sample.read_text().split("\n", 1)
        pretends = pathlib.PurePosixPath(head.removeprefix("// file: "))
        found = list(violations(rules, pretends, text))
        expected_to_pass = sample.name.startswith("pass_")
        if expected_to_pass != (not found):
            wrong += 1
            print(f"{sample.name}: found {found}")
    return wrong


def main():
    rules = json.loads((HERE / "layers.json").read_text())
    if sys.argv[1:] == ["--self_test"]:
        return 1 if self_test(rules) else 0
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent.parent
    found, checked = check(root, rules)
    print("\n".join(found), end="\n" if found else "")
    print(f"layer check: {checked} files, {len(found)} violations")
    return 1 if found or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
