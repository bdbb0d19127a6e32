"""Older kernels than this one, in an emulator: flamed is held to the same there (tests/kernels/)."""

import os
import sys

import harness

sys.path.append(os.path.join(harness.ROOT, "tests/kernels"))

import boots  # noqa: the path is set above
import checks
import machine

KERNELS = os.environ.get("E2E_KERNELS", os.path.join(harness.ROOT, "build/kernels"))
#: The second may be gone from a mirror; the first never is.
CHECKED = ("6.1", "5.10")


@harness.once
def booted():
    """Together, as late as possible: not when other tests are asked for."""
    return boots.boot_all(KERNELS, CHECKED, harness.scratch())


def make_test(kernel, check):
    def test():
        boot = booted()[kernel]
        if isinstance(boot, harness.Skip) and kernel == "6.1":
            raise AssertionError(str(boot))
        if isinstance(boot, Exception):
            raise boot
        check(boot)

    test.timeout = 2 * machine.LIMIT_S
    return test


for _kernel in CHECKED:
    for _check in checks.CHECKS:
        globals()[f"test_{_kernel}_{_check.__name__}"] = make_test(_kernel, _check)
