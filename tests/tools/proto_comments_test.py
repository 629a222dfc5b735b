#!/usr/bin/env python3
"""Every rpc's comment lists its status codes, and every field has a comment of its own: protos are the API's manual.

    proto_comments_test.py protos/baton/v1
"""
import pathlib
import re
import sys

CODES = ("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
         "DATA_LOSS", "OK always")
FIELD = re.compile(r"(?:repeated |optional )?(?:map<\w+, \w+>|[\w.]+) (\w+) = \d+;")
RPC = re.compile(r"rpc (\w+)\(")


def comment_above(lines, index):
    """The comment lines that end just above `index`, as one text."""
    first = index
    while first > 0 and lines[first - 1].lstrip().startswith("//"):
        first -= 1
    return " ".join(line.strip(" /") for line in lines[first:index]).strip()


def faults(text):
    """What lacks its comment in a .proto's text, as (line number, complaint)."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        declaration = line.strip()
        if field := FIELD.fullmatch(declaration):
            if not comment_above(lines, index):
                yield index + 1, f"field {field[1]} has no comment"
        elif rpc := RPC.match(declaration):
            if not any(code in comment_above(lines, index) for code in CODES):
                yield index + 1, f"the comment of rpc {rpc[1]} names no status code"


def check_itself():
    """A sample with one fault of each kind and one good declaration of each."""
    sample = """
  // NOT_FOUND  it is not there.
  rpc Good(A) returns (B);
  // Does something.
  rpc Bad(A) returns (B);
  // In tokens.
  map<uint32, float> good = 1;
  repeated uint32 bad = 2;
"""
    assert list(faults(sample)) == [(5, "the comment of rpc Bad names no status code"), (8, "field bad has no comment")]


def main():
    check_itself()
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.proto"))
    assert files, f"no protos in {sys.argv[1]}"
    found = [f"{path}:{line}: {what}" for path in files for line, what in faults(path.read_text())]
    print("\n".join(found) or f"{len(files)} files, nothing lacks its comment")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
