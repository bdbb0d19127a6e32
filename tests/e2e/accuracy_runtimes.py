"""accuracy_runtimes - what `make accuracy` samples besides: language runtimes that keep stacks of their own.

Fibers, green threads, compiled code without frame pointers, libraries without CFI. As accuracy_programs.py.
"""

import os
import shlex
import subprocess

import harness
from accuracy_programs import new_directory, new_file, of_path, output, program, sh
from harness import SOURCES, Skip, need_program, scratch_file

NO_CFI = "compiled code without frame pointers"
FIRST = "the first samples of a second stack"


def script(name, interpreter, suffix, text, *flags, **rule):
    @program(name, **rule)
    def prepare():
        return [need_program(interpreter), *flags, new_file(suffix, text)]


# ---- fibers: each ends at its entry, and nobody has called that ----

script(
    "ruby, fibers",
    "/usr/bin/ruby",
    ".rb",
    """def work(n) x = 0; n.times { |i| x ^= i * 7 }; x end
def used() Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) end
fibers = 8.times.map { Fiber.new { loop { work(20000); Fiber.yield } } }
fibers.each(&:resume) while used < 3
""",
)
script(
    "ruby, threads",
    "/usr/bin/ruby",
    ".rb",
    """def work(n) x = 0; n.times { |i| x ^= i * 7 }; x end
def used() Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) end
4.times.map { Thread.new { work(100000) while used < 3 } }.each(&:join)
""",
)
script(
    "php, fibers",
    "/usr/bin/php",
    ".php",
    """<?php
function work($n) { $x = 0; for ($i = 0; $i < $n; $i++) $x ^= $i * 7; return $x; }
$fibers = [];
for ($i = 0; $i < 8; $i++)
    $fibers[] = new Fiber(function () { while (true) { work(20000); Fiber::suspend(); } });
foreach ($fibers as $f) $f->start();
while (getrusage()['ru_utime.tv_sec'] < 3) foreach ($fibers as $f) $f->resume();
""",
)
script(
    "python3, greenlets",
    "/usr/bin/python3",
    ".py",
    """import greenlet, time
def work(n):
    x = 0
    for i in range(n): x ^= i * 7
    return x
def run():
    while True:
        work(2000)
        main.switch()
main = greenlet.getcurrent()
greenlets = [greenlet.greenlet(run) for _ in range(8)]
while time.process_time() < 3:
    for g in greenlets: g.switch()
""",
)


def compiled(name, suffix, text, *compiler, **rule):
    """compiler: its argv, to which `-o OUTPUT SOURCE` is added."""

    @program(name, **rule)
    def prepare():
        need_program(compiler[0])
        directory = new_directory()  # D and OCaml call modules as their files
        source = new_file("work" + suffix, text, directory)
        output(*compiler, "-o", f"{directory}/work", source, cwd=directory)
        return [f"{directory}/work"]


compiled(
    "D, fibers",
    ".d",
    """import core.thread, core.time;
__gshared ulong sink;
void work() { for (ulong i = 0; i < 20000; i++) sink ^= i * 7; }
void run() { while (true) { work(); Fiber.yield(); } }
void main() {
	Fiber[] fibers;
	foreach (i; 0 .. 8) fibers ~= new Fiber(&run);
	auto begin = MonoTime.currTime;
	while (MonoTime.currTime - begin < 3.seconds) foreach (f; fibers) f.call();
}
""",
    "/usr/bin/gdc",
    "-O1",
)
compiled(
    "crystal, fibers",
    ".cr",
    """def work(n)
  x = 0_u64
  n.times { |i| x ^= i.to_u64 &* 7 }
  x
end
SINK = [0_u64]
8.times { spawn { loop { 100.times { SINK[0] ^= work(SINK[0].to_i % 7 + 20000) }; Fiber.yield } } }
begin_at = Time.monotonic
while Time.monotonic - begin_at < 3.seconds
  Fiber.yield
end
""",
    "/usr/bin/crystal",
    "build",
    floor=97,
    later="in the middle of a switch of stacks",
)
compiled(
    "ocaml",
    ".ml",
    """let rec fib n = if n < 2 then 1 else fib (n - 1) + fib (n - 2)
let rec build n = if n = 0 then [] else n :: build (n - 1)
let () = while Sys.time () < 3.0 do ignore (fib 25); ignore (List.length (build 7000)) done
""",
    "/usr/bin/ocamlopt",
    floor=97,
    later=FIRST,
)

# ---- stacks far away, and code that is made at run time ----

script(
    "numpy, LU",
    "/usr/bin/python3",
    ".py",
    """import numpy, time
a = numpy.random.default_rng(1).random((700, 700))
while time.process_time() < 4: numpy.linalg.solve(a, a)
""",
)
script(
    "sbcl",
    "/usr/bin/sbcl",
    ".lisp",
    """(defun work (n) (let ((x 0)) (dotimes (i n x) (setf x (logxor x (* i 7))))))
(let ((end (+ (get-internal-run-time) (* 3 internal-time-units-per-second))))
  (loop while (< (get-internal-run-time) end) do (work 100000)))
""",
    "--script",
    floor=97,
    later=FIRST,
)
LUA = """local begin, x = os.clock(), 0
local function g(i) return (x + i) % 1000 end
while os.clock() - begin < 3 do for i = 1, 10000 do x = g(i) + #tostring(i) end end
"""
script("luajit -joff", "/usr/bin/luajit", ".lua", LUA, "-joff")
script("luajit", "/usr/bin/luajit", ".lua", LUA, floor=0, later=NO_CFI)


@program("node --perf-basic-prof")
def node_perf():
    path, source = need_program("/usr/bin/node"), os.path.join(SOURCES, "spin.js")
    # It leaves a log where it is.
    return sh(f"cd {harness.scratch()} && exec {path} --perf-basic-prof {shlex.quote(source)} 4")


@program("bun")
def bun():
    return [of_path("bun"), "run", os.path.join(SOURCES, "spin.js"), "4"]


@program("deno")
def deno():
    return [of_path("deno"), "run", "-A", os.path.join(SOURCES, "spin.js"), "4"]


WASM = """import time, wasmtime
store = wasmtime.Store()
module = wasmtime.Module(store.engine, '''(module
 (func $g (param i32) (result i32) local.get 0 i32.const 7 i32.mul)
 (func (export "f") (param i32) (result i32) (local i32)
  (loop $l local.get 1 local.get 0 call $g i32.xor local.set 1 local.get 0 i32.const 1 i32.sub local.tee 0 br_if $l)
  local.get 1))''')
f = wasmtime.Instance(store, module, []).exports(store)["f"]
while time.process_time() < 3: f(store, 10000000)
"""


@program("wasmtime in python3")
def wasmtime():
    python = need_program("/usr/bin/python3")
    if subprocess.run([python, "-c", "import wasmtime"], capture_output=True, check=False).returncode:
        raise Skip("python3 has no wasmtime")
    return [python, new_file(".py", WASM)]


@program("chromium, headless", floor=98, later="code without CFI (.init of libraries)")
def chromium():
    page = (
        "data:text/html,<script>let x = 0; const end = performance.now() + 3000;"
        "while (performance.now() < end) for (let i = 0; i < 1e5; i++) x ^= i * 7;"
        "document.title = x</script>"
    )
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={harness.scratch()}/chromium"]
    return [need_program("/usr/bin/chromium"), *flags, "--dump-dom", page]


# ---- without CFI ----

@program("musl", floor=0, later="code without CFI")
def musl():
    path = scratch_file("")
    source = os.path.join(SOURCES, "chain_c.c")
    output(need_program("/usr/bin/musl-gcc"), "-O1", "-static", "-I", SOURCES, "-o", path, source)
    return [path, "3"]


# ---- every algorithm ----

@program("openssl, all algorithms")
def openssl_all():
    path = need_program("/usr/bin/openssl")
    return sh(f"{path} speed -seconds 1 -bytes 8192 2>/dev/null >/dev/null")
