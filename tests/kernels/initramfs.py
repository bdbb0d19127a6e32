"""initramfs - the guest's root file system: a busybox, flamed, what it needs, and programs of known call chains."""

import os
import stat
import subprocess

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
BUSYBOX = "/bin/busybox"
BPFTOOL = "/usr/sbin/bpftool"
WORKLOADS = ("chain_c", "chain_cpp", "threads4", "syscall_loop", "spawner", "short5", "refuse", "user")
HELPERS = ("store", "bpf_facts")
DIRECTORIES = ("dev", "proc", "sys", "tmp", "run", "out", "var/lib", "etc", "root")
TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
}


class Cpio:
    """An archive in the kernel's format, `newc`."""

    def __init__(self):
        self.data = bytearray()
        self.names = set()

    def pad(self):
        self.data += b"\0" * (-len(self.data) % 4)

    def entry(self, name, mode, body=b"", device=(0, 0)):
        raw = name.encode() + b"\0"
        fields = [len(self.names) + 1, mode, 0, 0, 1, 0, len(body), 0, 0, *device, len(raw), 0]
        self.data += b"070701" + b"".join(b"%08x" % x for x in fields) + raw
        self.pad()
        self.data += body
        self.pad()
        self.names.add(name)

    def directory(self, name):
        if name and name not in self.names:
            self.directory(os.path.dirname(name))
            self.entry(name, stat.S_IFDIR | 0o755)

    def file(self, name, body, mode=0o755):
        if name not in self.names:
            self.directory(os.path.dirname(name))
            self.entry(name, stat.S_IFREG | mode, body)

    def symlink(self, name, target):
        self.directory(os.path.dirname(name))
        self.entry(name, stat.S_IFLNK | 0o777, target.encode())

    def device(self, name, major, minor):
        self.entry(name, stat.S_IFCHR | 0o666, device=(major, minor))

    def finish(self):
        self.entry("TRAILER!!!", 0)
        return bytes(self.data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def libraries(programs):
    """{path of a library: its real file} of dynamically linked programs."""
    found = {}
    for program in programs:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=60).stdout
        for word in said.split():
            if word.startswith("/"):
                found[word.lstrip("/")] = os.path.realpath(word)
    return found


def applets():
    said = subprocess.run([BUSYBOX, "--list"], check=True, capture_output=True, text=True, timeout=60)
    return said.stdout.split()


def build(kernel_directory, stages=os.path.join(HERE, "guest", "stages"), workloads=WORKLOADS):
    """The archive as bytes. stages: the script that the guest runs."""
    own = {f"bin/{x}": os.path.join(harness.BIN, x) for x in ("flamed", "flamed-symbolizer", "flamed-exporter")}
    own["bin/bpftool"] = harness.need_program(BPFTOOL)
    own["bin/busybox"] = harness.need_program(BUSYBOX)
    for name in workloads:
        own[f"w/{name}"] = harness.workload(name)
    helpers = os.environ.get("KERNELS_HELPERS", os.path.join(harness.ROOT, "build/release/tests/kernels"))
    for name in HELPERS:
        own[f"bin/{name}"] = os.path.join(helpers, name)
    c = Cpio()
    for name in DIRECTORIES:
        c.directory(name)
    c.device("dev/console", 5, 1)
    c.device("dev/null", 1, 3)
    for name, path in {**own, **libraries(own.values())}.items():
        c.file(name, read(path))
    for name in applets():
        if f"bin/{name}" not in c.names:
            c.symlink(f"bin/{name}", "busybox")
    for name, text in TEXTS.items():
        c.file(name, text.encode(), 0o644)
    c.file("overlay.ko", read(os.path.join(kernel_directory, "overlay.ko")), 0o644)
    for name in ("init", "refusals"):
        c.file(name, read(os.path.join(HERE, "guest", name)))
    c.file("stages", read(stages))
    return c.finish()
