#!/usr/bin/python3
"""run - boots kernels, checks what their guests left, prints a table.

    run.py [--write FILE] [--keep DIRECTORY] KERNELS NAME...

KERNELS is where packages.py put them. The last line is `N passed, N failed, N skipped`; the exit status is 1
when a check failed. --write makes docs/kernels.md; --keep leaves what the guests left.
"""

import argparse
import os
import signal
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../e2e")]
sys.dont_write_bytecode = True

import boots  # noqa: the path is set above
import checks
import harness
import table

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def judge(name, boot):
    """{check: result}"""
    if isinstance(boot, harness.Skip):
        print(f"skipped: {name}: {boot}")
        return {"boots": SKIPPED}
    if isinstance(boot, Exception):
        print(f"failed: {name}: {boot}")
        return {"boots": FAILED}
    results = {}
    for check in [checks.check_refused] if boot.refusal else checks.CHECKS:
        try:
            check(boot)
            results[check.__name__] = PASSED
        except Exception:  # noqa: any failure is the check's
            results[check.__name__] = FAILED
            print(f"failed: {name}: {check.__name__}\n{traceback.format_exc()}")
    return results


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--write")
    parser.add_argument("--keep")
    parser.add_argument("kernels")
    parser.add_argument("names", nargs="+", metavar="NAME")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of the machines' end
    with tempfile.TemporaryDirectory(prefix="flamed-kernels-") as scratch:
        directory = args.keep or scratch
        found = boots.boot_all(
            args.kernels, args.names, directory, lambda name: print(f"booted {name}", flush=True)
        )
        found = {name: found[name] for name in args.names}
        results = {name: judge(name, boot) for name, boot in found.items()}
        print("\n" + table.lay_out(table.rows_of(found)) + "\n")
        if args.write:
            with open(args.write, "w", encoding="utf-8") as f:
                f.write(table.document(found, results))
    all_results = [r for of_kernel in results.values() for r in of_kernel.values()]
    print(", ".join(f"{all_results.count(r)} {r}" for r in (PASSED, FAILED, SKIPPED)))
    return 1 if FAILED in all_results else 0


sys.exit(main())
