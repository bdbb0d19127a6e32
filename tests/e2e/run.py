#!/usr/bin/python3
"""run - the runner of all tests: unit test programs and the end-to-end tests beside this file.

    run.py [--unit PROGRAM...] [--no-e2e] [--list] [SUBSTRING...]

With SUBSTRINGs, only the end-to-end tests whose `file:name` contains one of them. The last line is
`N passed, N failed, N skipped`; the exit status is 1 when a test failed.

An end-to-end test is a function test_* of a test_*.py (or a unittest.TestCase there). It passes
when it returns, is skipped by unittest.SkipTest, and has function.timeout seconds (default 120).
Each file runs in a process of its own. A unit test program speaks TAP when asked (cmocka), else its
exit status is its one result (77: skipped).
"""

import argparse
import glob
import importlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = os.path.join(HERE, "..", "fuzz", "corpus")
TIMEOUT_S = 120
UNIT_TIMEOUT_S = 300
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Tally:
    def __init__(self):
        self.counts = {PASSED: 0, FAILED: 0, SKIPPED: 0}
        self.programs = []  # (name, seconds, tests, failed)
        self.skips = []
        self.failures = []

    def add_program(self, name, seconds, results):
        for test, result in results:
            self.counts[result] += 1
            if result == FAILED:
                self.failures.append(f"{name}: {test}")
            elif result == SKIPPED:
                self.skips.append(f"{name}: {test}")
        failed = sum(result == FAILED for _, result in results)
        self.programs.append((name, seconds, len(results), failed))

    def print(self):
        print(f"\n{'program':<32} {'seconds':>8} {'tests':>6} {'failed':>6}")
        for name, seconds, tests, failed in self.programs:
            print(f"{name:<32} {seconds:>8.1f} {tests:>6} {failed:>6}")
        print(f"{'total':<32} {sum(p[1] for p in self.programs):>8.1f}")
        for skip in self.skips:
            print(f"skipped: {skip}")
        for failure in self.failures:
            print(f"failed: {failure}")
        print(", ".join(f"{n} {result}" for result, n in self.counts.items()), flush=True)


def report(result, name, seconds, detail=""):
    print(f"{result:<7} {seconds:6.1f} s  {name}" + (f"  ({detail})" if detail else ""), flush=True)


# ---- unit test programs ----


def parse_tap(text):
    """[(name, result)] of the lines of a cmocka program."""
    results = []
    for bad, name in re.findall(r"^(not )?ok \d+ *(?:- *)?(.*)$", text, re.M):
        skip = re.match(r"# *SKIP *(.*)", name, re.I)
        results.append((skip[1] if skip else name, SKIPPED if skip else FAILED if bad else PASSED))
    return results


def run_unit(path, tally):
    name = os.path.basename(path)
    command = [path]
    if name.startswith("replay_"):
        command.append(os.path.join(CORPUS, name.removeprefix("replay_")))
    if "/asan/" in path:
        name = "asan/" + name
    begin = time.monotonic()
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "CMOCKA_MESSAGE_OUTPUT": "TAP"},
            text=True,
            errors="backslashreplace",
            stdin=subprocess.DEVNULL,
            timeout=UNIT_TIMEOUT_S,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = (error.stdout or b"").decode(
            errors="backslashreplace"
        ) + "\ntimed out", None
    except OSError as error:
        output, status = str(error), None
    seconds = time.monotonic() - begin
    results = parse_tap(output)
    if not results:
        results = [(name, {0: PASSED, 77: SKIPPED}.get(status, FAILED))]
    elif status != 0 and all(result != FAILED for _, result in results):
        results.append((f"the program's end (status {status})", FAILED))
    failed = [test for test, result in results if result == FAILED]
    whole = (
        FAILED if failed else PASSED if any(result == PASSED for _, result in results) else SKIPPED
    )
    report(whole, name, seconds, f"{len(results)} tests")
    if failed:
        print(output[-8000:], flush=True)
    tally.add_program(name, seconds, results)


# ---- end-to-end tests ----


def on_alarm(_signo, _frame):
    raise TimeoutError("the test took too long")


def on_terminate(_signo, _frame):
    sys.exit(1)  # by way of the test's `finally`: what it started ends with it


def discover(path):
    """[(name, callable, timeout)] of a test file, in its own order."""
    module = importlib.import_module(os.path.basename(path)[:-3])
    tests = [
        (name, f, getattr(f, "timeout", TIMEOUT_S))
        for name, f in vars(module).items()
        if name.startswith("test_") and inspect.isfunction(f)
    ]
    for case in unittest.defaultTestLoader.loadTestsFromModule(module):
        for test in case:
            tests.append((test.id().split(".", 1)[1], lambda test=test: run_case(test), TIMEOUT_S))
    return tests


def run_case(test):
    result = unittest.TestResult()
    test.run(result)
    for _, reason in result.skipped:
        raise unittest.SkipTest(reason)
    for _, text in result.errors + result.failures:
        raise AssertionError(text)


def selected(path, name, substrings):
    return not substrings or any(s in f"{os.path.basename(path)}:{name}" for s in substrings)


def run_test(name, function, timeout):
    import harness

    begin = time.monotonic()
    detail, result = "", PASSED
    signal.alarm(timeout)
    try:
        function()
    except unittest.SkipTest as reason:
        result, detail = SKIPPED, str(reason)
    except Exception:  # noqa: any failure is the test's
        result = FAILED
        traceback.print_exc(file=sys.stdout)
    finally:
        signal.alarm(0)
        harness.stop_all()
    report(result, name, time.monotonic() - begin, detail)
    return result


def run_file_here(path, substrings, out):
    """In the file's own process: one JSON line to `out` for each test."""
    signal.signal(signal.SIGALRM, on_alarm)
    signal.signal(signal.SIGTERM, on_terminate)
    signal.signal(signal.SIGINT, on_terminate)
    for name, function, timeout in discover(path):
        if not selected(path, name, substrings):
            continue
        print(json.dumps(["begin", name]), file=out, flush=True)
        print(json.dumps([run_test(name, function, timeout), name]), file=out, flush=True)
    print(json.dumps(["end", ""]), file=out, flush=True)


def run_file(path, substrings, tally):
    begin = time.monotonic()
    read_fd, write_fd = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(read_fd)
        status = 1
        try:
            with os.fdopen(write_fd, "w") as out:
                run_file_here(path, substrings, out)
            status = 0
        except BaseException:  # noqa: it must not return into the parent's stack
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        import atexit

        atexit._run_exitfuncs()
        os._exit(status)
    os.close(write_fd)

    def stop_too(_signo, _frame):
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        sys.exit(1)

    for signo in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signo, stop_too)
    results, running, ended = [], "import", False
    with os.fdopen(read_fd) as lines:
        for line in lines:
            kind, name = json.loads(line)
            if kind == "begin":
                running = name
            elif kind == "end":
                ended = True
            else:
                results.append((name, kind))
                running = "between tests"
    os.waitpid(pid, 0)
    for signo in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signo, signal.SIG_DFL)
    if not ended:
        results.append((f"{running} (its process died)", FAILED))
    if results:
        tally.add_program(os.path.basename(path), time.monotonic() - begin, results)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("substrings", nargs="*", metavar="SUBSTRING")
    parser.add_argument("--unit", nargs="*", action="extend", default=[], metavar="PROGRAM")
    parser.add_argument("--no-e2e", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    sys.path.insert(0, HERE)
    sys.dont_write_bytecode = True
    os.environ["LC_ALL"] = "C.UTF-8"  # readelf and others speak the user's language
    files = [] if args.no_e2e else sorted(glob.glob(os.path.join(HERE, "test_*.py")))
    if args.list:
        for path in files:
            for name, _, _ in discover(path):
                if selected(path, name, args.substrings):
                    print(f"{os.path.basename(path)}:{name}")
        return 0
    tally = Tally()
    for path in args.unit:
        run_unit(path, tally)
    for path in files:
        run_file(path, args.substrings, tally)
    tally.print()
    return 1 if tally.counts[FAILED] or not tally.programs else 0


sys.exit(main())
