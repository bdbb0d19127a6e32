"""boots - one boot of each kernel, and what it left, for those who judge it (checks.py) and those who show it (table.py)."""

import concurrent.futures
import functools
import glob
import os
import re
import types

import harness
import initramfs
import machine

#: A machine keeps one processor busy.
AT_A_TIME = 2


class Boot:
    """A guest that came to its end, and the files that it left."""

    def __init__(self, name, directory, seconds, files, console):
        self.name, self.directory, self.seconds, self.console = name, directory, seconds, console
        for path, data in files.items():
            path = os.path.join(directory, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(data)

    def path(self, name):
        return os.path.join(self.directory, name)

    def text(self, name):
        """Empty when the guest did not come so far."""
        if not os.path.exists(self.path(name)):
            return ""
        with open(self.path(name), "rb") as f:
            return f.read().decode(errors="backslashreplace")

    def files(self, pattern):
        return sorted(glob.glob(self.path(pattern)))

    @functools.cached_property
    def facts(self):
        """{first word: rest of the line}"""
        return dict(re.findall(r"^(\S+) ?(.*)$", self.text("facts"), re.M))

    def number(self, fact):
        assert fact in self.facts, f"the guest did not say its {fact}: {self.facts}"
        return int(self.facts[fact])

    def pid(self, workload):
        match = re.search(rf"^pid {workload} (\d+)$", self.text("facts"), re.M)
        assert match, f"{workload} was not run: {self.text('facts')}"
        return int(match[1])

    @property
    def in_vain(self):
        return re.findall(r"^in_vain (.*)$", self.text("facts"), re.M)

    @functools.cached_property
    def record(self):
        """What `flamed record` made of its stage, as the end-to-end tests see it."""
        said = self.text("record.err")
        status = self.number("record_status")
        assert status == 0, f"flamed record ended with {status}: {said}"
        return harness.Result(
            types.SimpleNamespace(
                process=types.SimpleNamespace(returncode=status),
                output=self.path("record.pb.gz"),
                stderr=lambda: said,
                stdout_path=self.path("record.out"),
            )
        )

    def programs(self, when):
        """{name: {key: number}} of the BPF programs at the start or the end of the recording."""
        found = {}
        for name, rest in re.findall(r"^program (\w+) (.*)$", self.text(f"programs.{when}"), re.M):
            found[name] = {k: int(v) for k, v in re.findall(r"(\w+) (\d+)", rest)}
        return found

    @functools.cached_property
    def features(self):
        """[(name, yes or no, since)], as `flamed features` says, without what it does not use."""
        table = self.text("features").partition("\n\n")[0].splitlines()[1:]
        return [x[:3] for x in (re.split(r" {2,}", line) for line in table) if not x[-1].startswith("not used")]

    @property
    def refusal(self):
        """Why flamed does not run on this kernel; None when it does."""
        match = re.search(r"^flamed cannot run here: (.*)$", self.text("features"), re.M)
        return match[1] if match else None


def boot(kernels, name, directory, machines):
    kernel = os.path.join(kernels, name)
    missing = os.path.join(kernel, "missing")
    if os.path.exists(missing):
        with open(missing, encoding="utf-8") as f:
            raise harness.Skip(f"no kernel: {f.read()}")
    if not os.path.exists(os.path.join(kernel, "vmlinuz")):
        raise AssertionError(f"{kernel} is missing: tests/kernels/packages.py makes it")
    directory = os.path.join(directory, name)
    os.makedirs(directory)
    guest = machine.Machine(kernel, initramfs.build(kernel), directory)
    machines.append(guest)
    files = guest.wait()
    return Boot(name, directory, guest.seconds, files, guest.console())


def boot_all(kernels, names, directory, told=lambda name: None):
    """{name: Boot, or the exception that there is instead}"""
    result, machines = {}, []
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        try:
            waiting = {pool.submit(boot, kernels, name, directory, machines): name for name in names}
            for future in concurrent.futures.as_completed(waiting):
                name = waiting[future]
                error = future.exception()
                result[name] = error if error else future.result()
                told(name)
        finally:  # also when we are interrupted
            for future in waiting:
                future.cancel()
            for guest in machines:
                guest.stop()
    return result
