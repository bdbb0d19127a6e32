"""recurse.py [SECONDS] - pure Python recursion, 100 deep.

Expected: a complete native stack: _start, __libc_start_main, (its helper), main of the interpreter,
Py_BytesMain ... _PyEval_EvalFrameDefault.
"""

import sys
import time


def recurse(depth):
    if depth == 0:
        total = 0
        for i in range(2000):
            total += i ^ (i << 3)
        return total
    return recurse(depth - 1) + 1


def main():
    end = time.process_time() + (float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
    while time.process_time() < end:
        recurse(100)


main()
