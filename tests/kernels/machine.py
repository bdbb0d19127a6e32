"""machine - an emulated machine that boots a kernel with an initramfs, and what it left.

KVM is neither needed nor used. The guest's console is its first serial line, its results are a tar archive on
the second. A guest that panics, falls silent or is not done in time is ended, and its last lines are the error.
"""

import io
import os
import re
import subprocess
import tarfile
import time

QEMU = "/usr/bin/qemu-system-x86_64"
LIMIT_S = 1800
SILENT_S = 600  # the longest stage, when much else runs
CPUS = 2
#: One thread for both processors: with two, a kernel that patches its code while the other processor runs it has
#: been seen to panic in the middle of the patched instruction, and to hang.
ACCELERATOR = "tcg,thread=single"
DONE = "@ done"


class Failed(Exception):
    """The guest did not come to its end."""


class Machine:
    def __init__(self, kernel_directory, initramfs, directory):
        self.console_path = os.path.join(directory, "console")
        self.results_path = os.path.join(directory, "results")
        archive = os.path.join(directory, "initramfs")
        with open(archive, "wb") as f:
            f.write(initramfs)
        for path in (self.console_path, self.results_path):
            with open(path, "wb"):
                pass
        self.begun = time.monotonic()
        self.errors_path = os.path.join(directory, "qemu")
        with open(self.errors_path, "wb") as errors:
            self.process = subprocess.Popen([
                QEMU, "-accel", ACCELERATOR, "-cpu", "max,la57=off", "-smp", str(CPUS), "-m", "1024",
                "-nodefaults", "-display", "none", "-no-reboot", "-net", "none",
                "-serial", f"file:{self.console_path}", "-serial", f"file:{self.results_path}",
                "-kernel", os.path.join(kernel_directory, "vmlinuz"), "-initrd", archive,
                "-append", "console=ttyS0 quiet panic=-1 noirqdebug",
            ], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)  # fmt: skip

    def console(self):
        with open(self.console_path, "rb") as f:
            return f.read().decode(errors="backslashreplace").replace("\r", "")

    def fail(self, why):
        with open(self.errors_path, encoding="utf-8", errors="replace") as f:
            errors = f.read()
        try:
            lines = self.console().splitlines()[-40:]
        except OSError:
            lines = []
        raise Failed("\n  ".join([why, *errors.splitlines()[-5:], *lines]))

    def wait(self):
        """{name: bytes} of what the guest left, when it is done."""
        heard, grew = 0, self.begun
        while self.process.poll() is None:
            size, now = os.path.getsize(self.results_path) + os.path.getsize(self.console_path), time.monotonic()
            if size != heard:
                heard, grew = size, now
            if now > min(self.begun + LIMIT_S, grew + SILENT_S):
                self.stop()
                self.fail(f"the guest hung, or was not done after {LIMIT_S} s; its console:")
            time.sleep(0.2)
        self.seconds = time.monotonic() - self.begun
        if self.process.returncode:
            self.fail(f"the machine ended with status {self.process.returncode}:")
        console = self.console()
        if "Kernel panic" in console or not re.search(f"^{DONE}$", console, re.M):
            self.fail("the guest did not come to its end; its console:")
        with open(self.results_path, "rb") as f:
            data = f.read()
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
                return {
                    os.path.normpath(m.name): tar.extractfile(m).read() for m in tar if m.isfile()
                }
        except (tarfile.TarError, EOFError, OSError) as error:
            self.fail(f"its results are no archive ({error}); its console:")

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
