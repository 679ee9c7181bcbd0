#!/usr/bin/env python3
"""MMAT: minimum, maximum and average of a variable of a file, with os.open, os.pread and os.close.

    mmat.py FILE f32|f64 [OFFSET [STRIDE]]

The variable is every STRIDE-th number, the first at byte OFFSET. Numbers are little-endian, as the machine's; what is no number
(NaN) is left out.
"""
import array
import os
import sys

BLOCK = 4 << 20
USAGE = "usage: mmat.py FILE f32|f64 [OFFSET [STRIDE]]"


def blocks(file, at):
    """All bytes of the file from `at` on, in whole blocks but for the last."""
    while True:
        block = bytearray()
        # A read may give less than was asked for.
        while len(block) < BLOCK:
            read = os.pread(file, BLOCK - len(block), at + len(block))
            if not read:
                break
            block += read
        yield block
        if len(block) < BLOCK:
            return
        at += len(block)


def main():
    try:
        path, kind, *more = sys.argv[1:]
        code = {"f32": "f", "f64": "d"}[kind]
        offset, stride = (int(n) for n in more + ["0", "1"][len(more):])
    except (ValueError, KeyError):
        sys.exit(USAGE)
    if offset < 0 or stride < 1:
        sys.exit(USAGE)
    width = array.array(code).itemsize
    minimum, maximum, total, count, skip = float("inf"), float("-inf"), 0.0, 0, 0
    try:
        file = os.open(path, os.O_RDONLY)
        for block in blocks(file, offset):
            numbers = array.array(code, bytes(block[: len(block) - len(block) % width]))
            values = [value for value in numbers[skip::stride] if value == value]
            skip = (skip - len(numbers)) % stride
            if values:
                minimum, maximum = min(minimum, min(values)), max(maximum, max(values))
                total, count = total + sum(values), count + len(values)
        os.close(file)
    except OSError as error:
        sys.exit(f"mmat.py: {path}: {error.strerror}")
    if count == 0:
        sys.exit(f"mmat.py: {path}: there is no number")
    print(f"minimum {minimum!r}\nmaximum {maximum!r}\naverage {total / count!r}\nvalues {count}")


if __name__ == "__main__":
    main()
