"""Names and lines from separate debug files: by build ID and by link, in the program's root and in the host's."""

import os
import shutil
import subprocess

import harness
import pprof

SOURCE = os.path.join(harness.SOURCES, "lines/spin.c")
INLINED = ["inner", "middle", "outer"]


def run(*argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout


def build(directory, *flags):
    """The program, stripped, and its debug file."""
    os.makedirs(directory, exist_ok=True)
    program, debug = os.path.join(directory, "program"), os.path.join(directory, "program.dbg")
    run("/usr/bin/gcc", "-O2", "-g", *flags, "-o", program, SOURCE)
    run("/usr/bin/objcopy", "--only-keep-debug", program, debug)
    run("/usr/bin/strip", program)
    return program, debug


def add_link(program, debug, name):
    """Which names the debug file's last component, and its CRC."""
    copy = os.path.join(os.path.dirname(debug), name)
    if copy != debug:
        os.rename(debug, copy)
    run("/usr/bin/objcopy", f"--add-gnu-debuglink={copy}", program)
    return copy




def build_id(program):
    text = run("/usr/bin/readelf", "-n", program)
    return text.split("Build ID: ")[1].split()[0]


def spinning(argv):
    """The names of the leaf's location, innermost first, with its file and line, of most samples."""
    recording = harness.Recording()
    ran = harness.run_each({"spin": argv})["spin"]
    assert ran.returncode == 0, ran.stdout
    profile = pprof.load(recording.finish().path)
    locations = {location.id: location for location in profile.location}
    functions = {function.id: function for function in profile.function}
    counts = {}
    for sample in profile.sample:
        if profile.labels_of(sample).get("pid") != ran.pid:
            continue
        for location in (locations[i] for i in sample.location_id):
            frames = [functions[line.function_id] for line in location.line]
            names = tuple(profile.string(f.name) for f in frames)
            if not any(name in ("inner", "outer") or name.startswith("program+") for name in names):
                continue
            files = {profile.string(f.filename) for f in frames}
            counts[names, tuple(sorted(files))] = counts.get((names, tuple(sorted(files))), 0) + 1
    assert counts, "no sample of the program"
    return max(counts, key=counts.get)


def check_named(argv):
    names, files = spinning(argv)
    assert list(names) == INLINED and files == (SOURCE,), (names, files)


def check_unnamed(argv):
    names, _ = spinning(argv)
    assert len(names) == 1 and names[0].startswith("program+0x"), names


class Placed:
    """A debug file at a path of the host, for as long as this is entered."""

    def __init__(self, source, path):
        self.source, self.path = source, path

    def __enter__(self):
        self.made = []
        parent = os.path.dirname(self.path)
        while not os.path.isdir(parent):
            self.made.append(parent)
            parent = os.path.dirname(parent)
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        shutil.copyfile(self.source, self.path)

    def __exit__(self, *_):
        os.unlink(self.path)
        for directory in self.made:
            os.rmdir(directory)


def by_id(program):
    identity = build_id(program)
    return f"/usr/lib/debug/.build-id/{identity[:2]}/{identity[2:]}.debug"


def test_by_build_id_on_the_host():
    program, debug = build(os.path.join(harness.scratch(), "by-id"))
    with Placed(debug, by_id(program)):
        check_named([program])


def test_another_build_is_not_taken():
    program, _ = build(os.path.join(harness.scratch(), "this"))
    _, other = build(os.path.join(harness.scratch(), "another"), "-DOTHER", "-O1")
    with Placed(other, by_id(program)):
        check_unnamed([program])


def test_the_stripped_program_is_not_its_own_debug_file():
    program, _ = build(os.path.join(harness.scratch(), "own"))
    with Placed(program, by_id(program)):
        check_unnamed([program])


def test_by_link_in_each_of_its_places():
    for place in ["", ".debug/", "/usr/lib/debug"]:
        directory = os.path.join(harness.scratch(), "link" + place.replace("/", "_"))
        program, debug = build(directory, "-Wl,--build-id=none")
        debug = add_link(program, debug, "spin.debug")
        if place == ".debug/":
            os.mkdir(os.path.join(directory, ".debug"))
            os.rename(debug, os.path.join(directory, ".debug/spin.debug"))
        if place.startswith("/"):
            with Placed(debug, place + debug):
                os.unlink(debug)
                check_named([program])
        else:
            check_named([program])


def test_a_link_to_what_has_another_crc_is_not_taken():
    program, debug = build(os.path.join(harness.scratch(), "crc"), "-Wl,--build-id=none")
    debug = add_link(program, debug, "spin.debug")
    with open(debug, "ab") as f:
        f.write(b"\0")
    check_unnamed([program])


def test_a_fifo_at_the_place_of_a_debug_file_harms_nobody():
    program, debug = build(os.path.join(harness.scratch(), "fifo"), "-Wl,--build-id=none")
    debug = add_link(program, debug, "spin.debug")
    os.unlink(debug)
    os.mkfifo(debug)
    check_unnamed([program])


def root_with(directory, program):
    """A root that a program can be run in: it is static."""
    root = os.path.join(harness.scratch(), directory)
    os.makedirs(os.path.join(root, "app"))
    shutil.copyfile(program, os.path.join(root, "app/program"))
    os.chmod(os.path.join(root, "app/program"), 0o755)
    return root


def test_in_the_root_of_the_program_and_not_the_hosts_of_the_same_name():
    program, debug = build(os.path.join(harness.scratch(), "rooted"), "-static")
    _, other = build(os.path.join(harness.scratch(), "decoy"), "-static", "-O1")
    root = root_with("root", program)
    inside = root + by_id(program)
    os.makedirs(os.path.dirname(inside))
    shutil.copyfile(debug, inside)
    with Placed(other, by_id(program)):
        check_named(["/usr/sbin/chroot", root, "/app/program"])


def test_of_a_program_in_another_root_the_hosts_is_taken_too():
    program, debug = build(os.path.join(harness.scratch(), "outside"), "-static")
    with Placed(debug, by_id(program)):
        check_named(["/usr/sbin/chroot", root_with("bare", program), "/app/program"])


def dwz(directory, where):
    """A program whose debug file shares parts with another's; the file that has them; and its path in the link."""
    one, debug = build(os.path.join(directory, "one"))
    _, other = build(os.path.join(directory, "other"), "-O3", "-DOTHER")
    shared = os.path.join(directory, "shared.debug")
    run(harness.need_program("/usr/bin/dwz"), "-m", shared, "-M", where or shared, debug, other)
    return one, debug, shared


def test_what_dwz_moved_to_another_file_is_found():
    program, debug, shared = dwz(os.path.join(harness.scratch(), "dwz"), "")
    with Placed(debug, by_id(program)):
        check_named([program])
        os.unlink(shared)
        names, _ = spinning([program])
        assert "inner" not in names, f"without the shared file it is {names}: that has nothing that is needed"


def test_what_dwz_moved_is_found_by_its_build_id_and_beside_the_debug_file():
    for where in ["../../dwz-of-a-test/shared.debug", "/nowhere/shared.debug"]:
        program, debug, shared = dwz(os.path.join(harness.scratch(), "dwz" + str(len(where))), where)
        path = "/usr/lib/debug/dwz-of-a-test/shared.debug" if where.startswith(".") else by_id(shared)
        with Placed(debug, by_id(program)), Placed(shared, path):
            check_named([program])


def test_another_shared_file_is_not_taken():
    program, debug, shared = dwz(os.path.join(harness.scratch(), "dwz-this"), "")
    _, _, other = dwz(os.path.join(harness.scratch(), "dwz-that"), "")
    run("/usr/bin/objcopy", "--remove-section=.note.gnu.build-id", other, shared)
    with Placed(debug, by_id(program)):
        names, _ = spinning([program])
        assert "inner" not in names, names
