"""accuracy_programs - what `make accuracy` samples: real programs, each with its work.

A program is a function that prepares its input and returns the command to record. It raises Skip
where its program is not installed. Distribution programs are named by their full path; those of
other sources (rustup, pyenv, a Go of go.dev) are looked up in PATH and are used only where PATH has
them. `make accuracy` installs those of the distribution before (DEPS_ACCURACY in the Makefile).
"""

import atexit
import functools
import os
import pwd
import shutil
import subprocess
import tempfile

import accuracy_sources as sources
import harness
from harness import SOURCES, Skip, need_program, scratch_file, workload

PROGRAMS = []  # in the order of the table
EXACT = 99.0  # per cent of the samples complete, unless later work is to bring the program there


class Program:
    def __init__(self, name, prepare, floor, later):
        self.name = name
        self.prepare = prepare
        self.floor = floor
        self.later = later  # what is missing


def program(name, floor=EXACT, later=""):
    """Adds the decorated function to the table. A floor is what was measured, less a margin."""
    assert (floor < EXACT) == bool(later), f"{name}: a lower floor needs its reason"

    def add(function):
        PROGRAMS.append(Program(name, function, floor, later))
        return function

    return add


# ---- helpers ----


def sh(line, times=1):
    """A shell line, once or more."""
    if times > 1:
        line = f"for i in $(seq {times}); do {line} || exit 1; done"
    return ["/bin/sh", "-c", line]


def of_path(name):
    """A program of PATH that is no part of the distribution."""
    for directory in os.environ.get("PATH", "").split(":"):
        path = os.path.join(directory, name)
        of_distribution = os.path.realpath(path).startswith(("/usr/bin/", "/bin/", "/usr/lib/"))
        if os.access(path, os.X_OK) and not of_distribution:
            return path
    raise Skip(f"PATH has no {name} but the distribution's")


def output(*argv, **kwargs):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, **kwargs)
    if done.returncode:
        raise AssertionError(f"{argv} failed: {done.stderr[-1000:]}")
    return done.stdout


def new_directory():
    return tempfile.mkdtemp(dir=harness.scratch())


def new_file(suffix, text, directory=None):
    """`suffix` is the whole name when a directory is given."""
    path = os.path.join(directory, suffix) if directory else scratch_file(suffix)
    with open(path, "w", encoding="ascii") as f:
        f.writelines(text)
    return path


@functools.cache
def log_file():
    return new_file(".log", sources.log())


def large_binary():
    """cc1: 30 MB, without symbols."""
    return output(need_program("/usr/bin/gcc"), "-print-prog-name=cc1").strip()


# ---- ours: what is rare in programs that everybody has ----

LEARNED = "another stack's pages are learned first"


def ours(line, **rule):
    @program(f"ours: {line}", **rule)
    def prepare():
        name, *args = line.split()
        return [workload(name), *args, "3"]


ours("chain_c")
ours("pieces coroutines_of_main")
ours("pieces coroutines_of_thread")
ours("odd_roots ucontext")
ours("odd_roots fiber")
ours("odd_roots raw_clone")
ours("pieces clone_recursion", floor=97, later=LEARNED)
ours("pieces frame_540", floor=97, later=LEARNED)
ours("pieces recursion_540", floor=97, later=LEARNED)
ours("pieces thread_recursion", floor=97, later=LEARNED)
ours("pieces thread_tls", floor=97, later=LEARNED)
ours("pieces altstack_deep", floor=97, later=LEARNED)
ours("pieces segments_8", floor=97, later=LEARNED)
ours("go_host")
ours("go_cgo in_c")
ours("go_paths callers")
ours("realign")
ours("odd_rows saved_at_expression")


# ---- openssl: hand-written assembly ----


def openssl(algorithm, *args):
    @program(f"openssl {algorithm}")
    def prepare():
        path = need_program("/usr/bin/openssl")
        return [path, "speed", "-seconds", "4", *args, algorithm]


openssl("rsa2048")
openssl("sha512", "-bytes", "8192")
openssl("aes-256-cbc", "-bytes", "8192", "-evp")
openssl("aes-256-gcm", "-bytes", "8192", "-evp")
openssl("ecdsap256")
openssl("ed25519")
openssl("chacha20-poly1305", "-bytes", "8192", "-evp")


# ---- interpreters ----


@program("perl")
def perl():
    return [need_program("/usr/bin/perl"), new_file(".pl", sources.PERL)]


@program("python3")
def python3():
    return [need_program("/usr/bin/python3"), new_file(".py", sources.python(4000))]


@program("python3 of PATH")
def python3_of_path():
    # What PATH has may be a script that finds the interpreter.
    path = output(of_path("python3"), "-c", "import sys; print(sys.executable)").strip()
    return [path, new_file(".py", sources.python(4000))]


@program("python3.10 of PATH, C recursion", floor=97, later="the first samples of deep stacks")
def python310_recursion():
    environment = {**os.environ, "PYENV_VERSION": "3.10"}  # where PATH has pyenv's script
    find = [of_path("python3.10"), "-c", "import sys; print(sys.executable)"]
    found = subprocess.run(find, capture_output=True, text=True, check=False, env=environment)
    if found.returncode:
        raise Skip("python3.10 of PATH does not run")
    return [found.stdout.strip(), new_file(".py", sources.PYTHON_RECURSION)]


@program("python3, threads that end at once")
def python3_threads():
    return [need_program("/usr/bin/python3"), new_file(".py", sources.python(0, threads=25000))]


@program("node")
def node():
    return [need_program("/usr/bin/node"), os.path.join(SOURCES, "spin.js"), "4"]


@functools.cache
def java_classes():
    directory = new_directory()
    path = new_file("Work.java", sources.JAVA, directory)
    output(need_program("/usr/bin/javac"), "-d", directory, path)
    return directory


def java(*flags):
    path = need_program("/usr/bin/java")
    # Whatever the environment says of flags.
    clean = ["/usr/bin/env", "-u", "JAVA_TOOL_OPTIONS", "-u", "JDK_JAVA_OPTIONS"]
    return [*clean, path, *flags, "-cp", java_classes(), "Work", "180"]


@program("java -XX:+PreserveFramePointer")
def java_frame_pointers():
    return java("-XX:+PreserveFramePointer")


@program("java", floor=40, later="compiled code without frame pointers")
def java_default():
    return java()


# ---- data bases ----


@program("sqlite3")
def sqlite3():
    path = need_program("/usr/bin/sqlite3")
    return sh(f"{path} :memory: <{new_file('.sql', sources.SQL)} >/dev/null", 2)


def postgres(*settings):
    """A data base of its own, in single-user mode: no server, no socket."""
    directory = "/usr/lib/postgresql"
    versions = sorted(os.listdir(directory), key=int) if os.path.isdir(directory) else ["0"]
    programs = os.path.join(directory, versions[-1], "bin")
    need_program(f"{programs}/postgres")
    user = f"{need_program('/usr/bin/setpriv')} --reuid=postgres --regid=postgres --clear-groups"
    data = tempfile.mkdtemp(prefix="flamed-accuracy-")
    atexit.register(shutil.rmtree, data, ignore_errors=True)
    account = pwd.getpwnam("postgres")
    os.chown(data, account.pw_uid, account.pw_gid)
    output(*user.split(), f"{programs}/initdb", "-N", "-D", f"{data}/db", cwd="/")
    statements = new_file(".sql", sources.POSTGRES)
    single = f"{programs}/postgres --single {' '.join(settings)} -D {data}/db postgres"
    return sh(f"cd / && {user} {single} <{statements} >/dev/null 2>&1")


@program("postgres")
def postgres_interpreted():
    return postgres("-c jit=off")


@program("postgres, JIT", floor=85, later="compiled code without frame pointers")
def postgres_compiled():
    return postgres("-c jit=on -c jit_above_cost=0")


# ---- compilers and builds ----


@program("gcc -O2")
def gcc():
    import test_programs

    path = test_programs.large_c_file()
    return sh(f"{need_program('/usr/bin/gcc')} -O2 -c -o {path}.o {path}", 2)


def compile_cxx(compiler, tuple_size, times=1, copies=1):
    path = new_file(".cc", sources.cxx(tuple_size, copies))
    return sh(f"{need_program(compiler)} -std=c++17 -O2 -c -o {path}.o {path}", times)


@program("g++ -O2")
def gxx():
    return compile_cxx("/usr/bin/g++", 10, times=2)


@program("clang++ -O2")
def clangxx():
    return compile_cxx("/usr/bin/clang++", 10, times=2)


@program("clang++ -O2, deep templates", floor=97, later="the first samples of deep stacks")
def clangxx_deep():
    return compile_cxx("/usr/bin/clang++", 70, copies=3)


@program("rustc -O", floor=97, later="the first samples of giant frames")
def rustc():
    path = os.path.join(output(of_path("rustc"), "--print", "sysroot").strip(), "bin/rustc")
    crate = new_file(".rs", sources.rust())
    return [path, "-O", "--crate-type", "lib", "--out-dir", new_directory(), crate]


def go_build(go, path, *flags):
    """A build that finds nothing, asks nobody, and leaves nothing."""
    values = {
        "GOCACHE": new_directory(),
        "HOME": harness.scratch(),
        "GO111MODULE": "off",
        "GOTOOLCHAIN": "local",
        "GOPROXY": "off",
        "GOFLAGS": "",
        "CGO_ENABLED": "0",
    }
    settings = ["/usr/bin/env", "-u", "GOROOT", *(f"{k}={v}" for k, v in values.items())]
    return [*settings, go, "build", *flags, "-o", os.path.join(new_directory(), "built"), path]


@program("go build, cold cache")
def go_build_cold():
    return go_build(need_program("/usr/bin/go"), new_file(".go", sources.go(1000)))


@program("go build of PATH, cold cache")
def go_of_path_build_cold():
    return go_build(of_path("go"), new_file(".go", sources.go()))


@program("go program")
def go_spin():
    return [workload("go_spin"), "4"]


@program("go program, -s -w")
def go_spin_stripped():
    return [workload("go_stripped"), "4"]


def go_of_path_built(source, *flags):
    path = os.path.join(SOURCES, f"go/{source}.go")
    argv = go_build(of_path("go"), path, "-ldflags=-s -w", *flags)
    argv[argv.index("CGO_ENABLED=0")] = "CGO_ENABLED=1"
    output(*argv)
    return argv[-2]


def go_of_path_program(source, mode, *flags):
    return [go_of_path_built(source, *flags), mode, "4"]


@program("Go of PATH, runtime.Callers")
def go_of_path_callers():
    return go_of_path_program("paths", "callers")


@program("Go of PATH, in C")
def go_of_path_in_c():
    return go_of_path_program("cgo", "in_c")


@program("Go of PATH, in Go that C called")
def go_of_path_in_callback():
    return go_of_path_program("cgo", "in_callback")


@program("Go of PATH, PIE")
def go_of_path_pie():
    return go_of_path_program("paths", "callers", "-buildmode=pie")


@program("Go of PATH, morestack")
def go_of_path_grow():
    return go_of_path_program("paths", "grow")


@program("Go of PATH, c-shared")
def go_of_path_shared():
    library, program_path = go_of_path_built("shared", "-buildmode=c-shared"), scratch_file("")
    source = os.path.join(SOURCES, "go_host.c")
    argv = [need_program("/usr/bin/gcc"), "-O1", "-I", SOURCES, "-o", program_path, source, library]
    output(*argv)
    return [program_path, "4"]


@program("make -j2")
def make():
    directory = new_directory()
    new_file("Makefile", sources.MAKEFILE, directory)
    for i in range(60):
        new_file(f"f{i}.c", sources.c(i), directory)
    return [need_program("/usr/bin/make"), "-s", "-j2", "-C", directory]


@program("cmake and ninja")
def cmake():
    path, ninja = need_program("/usr/bin/cmake"), need_program("/usr/bin/ninja")
    directory = new_directory()
    new_file("CMakeLists.txt", sources.CMAKE, directory)
    new_file("small.c", sources.c(1), directory)
    new_file("more.cc", sources.c(2), directory)
    compilers = "-DCMAKE_C_COMPILER=/usr/bin/gcc -DCMAKE_CXX_COMPILER=/usr/bin/g++"
    out = f"{directory}/$i"
    configure = f"{path} -G Ninja {compilers} -S {directory} -B {out} >/dev/null"
    return sh(f"{configure} && {ninja} -C {out} >/dev/null", 3)


# ---- tools ----


@program("git repack")
def git():
    path, repo = need_program("/usr/bin/git"), new_directory()
    output(path, "init", "-q", "--bare", repo)
    output(path, "-C", repo, "fast-import", "--quiet", input=sources.git())
    return sh(f"{path} -C {repo} -c pack.threads=2 repack -adfq --depth=50 --window=50", 6)


def on_log(name, command, times=1):
    @program(name)
    def prepare():
        need_program(command.split()[0])
        return sh(f"{command.replace('LOG', log_file())} >/dev/null", times)


on_log("xz", "/usr/bin/xz -0 -T2 -c LOG")
on_log("gzip", "/usr/bin/gzip -c LOG", 2)
on_log("zstd", "/usr/bin/zstd -q -11 -c LOG")
on_log("sort", "/usr/bin/sort -k4,4 -n -k2 --buffer-size=64M LOG", 2)
on_log("awk", "/usr/bin/awk '{ s[$5] += $1; n[$3 % 97]++ } END { for (k in n) print n[k] }' LOG", 6)
on_log("sha256sum", "/usr/bin/sha256sum LOG LOG LOG LOG LOG", 4)


@program("dd")
def dd():
    path = need_program("/bin/dd")
    return [path, "if=/dev/zero", "of=/dev/null", "bs=64k", "count=1800000", "status=none"]


@program("tar")
def tar():
    path = need_program("/usr/bin/tar")
    return sh(f"{path} -C /usr -cf - bin lib/gcc share 2>/dev/null | /bin/cat >/dev/null")


@program("find")
def find():
    path = need_program("/usr/bin/find")
    return sh(f"{path} /usr /var/lib -xdev -name '*.so*' -size +1 >/dev/null", 4)


@program("bash, fork and exec")
def bash_loop():
    once = "x=$(/bin/echo $i | /usr/bin/tr 0-9 a-j); /bin/true"
    return [need_program("/bin/bash"), "-c", f"for ((i = 0; i < 600; i++)); do {once}; done"]


@program("readelf")
def readelf():
    path = need_program("/usr/bin/readelf")
    return sh(f"{path} --debug-dump=frames -rW {large_binary()} >/dev/null", 6)


@program("objdump -d")
def objdump():
    path = need_program("/usr/bin/objdump")
    return sh(f"{path} -d --stop-address=0x900000 {large_binary()} >/dev/null")


@program("gdb --batch")
def gdb():
    commands = ["info functions unwind", "info types .", "disassemble main", "info scope main"]
    options = " ".join(f"-ex '{command}'" for command in commands)
    file = os.path.join(harness.BIN, "flamed-symbolizer")
    return sh(f"{need_program('/usr/bin/gdb')} -nx --batch {options} {file} >/dev/null", 12)
