"""checks - what has to hold in every guest: the functions of CHECKS, whose names are sentences.

All is relative to the samples that there are: in an emulator a second is no measure of anything.
"""

import collections
import os
import re
import time

import daemon
import harness
import pprof
import pyroscope_rules as rules
from harness import START, check_chain, check_rate, total, with_user_stack

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def of(boot, workload):
    return boot.record.of(boot.pid(workload), workload)


def within(stacks, functions):
    """Those that came to the program's own functions: an emulator takes long to start a program."""
    return [s for s in stacks if not functions.isdisjoint(s.names)]


def check_own_chain(what, stacks, functions, pattern, rate=0.99, at_least=50):
    check_chain(what, within(stacks, functions), pattern, rate, at_least)


@check
def the_guest_waits_for_nothing_in_vain(boot):
    assert not boot.in_vain, f"{boot.in_vain}; {boot.text('record.err')}{boot.text('v2.log')}"


@check
def the_kernel_complains_of_nothing(boot):
    words = r"BUG:|WARNING:|Oops|general protection|sleeping function|scheduling while atomic|unable to handle"
    bad = [line for line in boot.text("dmesg").splitlines() if re.search(words, line)]
    assert not bad, "\n".join(bad[:20])


@check
def features_are_named(boot):
    assert boot.facts["features_status"] == "0", boot.text("features")
    assert boot.text("features").splitlines()[-1] == "flamed can run here", boot.text("features")
    assert len(boot.features) > 10, boot.text("features")


@check
def a_recording_keeps_its_laws(boot):
    boot.record.check_laws()


@check
def hardly_a_sample_is_lost(boot):
    # The ring fills while the emulator reads symbols, the more so on a machine whose CPUs are stolen.
    harness.check_no_loss(boot.record, share=0.25)


CHAIN_FUNCTIONS = {"a", "b", "c", "spin"}
CHAIN = START + "a(;b(;c(;spin)?)?)?(;|$)"


@check
def c_programs_have_their_chain(boot):
    check_own_chain("chain_c", of(boot, "chain_c"), CHAIN_FUNCTIONS, CHAIN)


@check
def cpp_programs_have_their_chain(boot):
    stacks = of(boot, "chain_cpp")
    frames = [f"layer<{n}>" for n in (3, 2, 1, 0)]
    layers = [s for s in stacks if ";layer<" in s.folded]
    # A part of the time the upper layers are not called yet, or left by an exception.
    check_chain("chain_cpp", layers, START + frames[0] + "(;|$)")
    deep = [s for s in layers if re.search(frames[3], s.folded)]
    check_chain("chain_cpp to its leaf", deep, START + ";".join(frames) + "(;|$)")


@check
def threads_have_their_chain(boot):
    stacks = of(boot, "threads4")
    check_own_chain("threads4", stacks, {"thread_main", "a", "spin"}, r"(^|;)thread_main(;a(;spin)?)?(;|$)")
    busy = collections.Counter()
    for s in within(stacks, {"spin"}):
        busy[s.tid] += s.count
    assert len(busy) == 4, f"four threads were busy, seen: {busy}"


@check
def system_calls_have_kernel_frames_above_the_stub(boot):
    stacks = within(of(boot, "syscall_loop"), {"read_zero", "ask_parent"})
    check_chain("syscall_loop", stacks, START + "(read_zero|ask_parent)(;|$)")
    stub = r";main;read_zero;(__GI_)?(__libc_|__)?read;"
    reading = [s for s in stacks if re.search("(ksys_read|vfs_read|clear_user)(;|$)", s.folded)]
    check_rate("kernel frames above read", reading, lambda s: re.search(stub, s.folded), rate=0.98)
    for s in stacks:
        modules = [harness.is_kernel(m) for m in s.modules]
        assert modules == sorted(modules), f"a user frame above a kernel frame: {s.folded} {s.modules}"


def check_short(boot, name, at_least):
    said = boot.text(f"{name}.ran")
    assert "children: 20\n" in said, f"not all of 20 ended well: {said}"
    stacks = with_user_stack(boot.record.of(comm=name))
    check_rate(
        f"{name}: complete and in its file", stacks, lambda s: s.complete and s.service == name,
        rate=0.95, at_least=at_least,
    )  # fmt: skip
    check_own_chain(name, stacks, CHAIN_FUNCTIONS, CHAIN, rate=0.97, at_least=at_least // 2)
    return stacks


@check
def processes_of_50_ms_are_whole(boot):
    stacks = check_short(boot, "brief", 100)
    pids = {s.pid for s in within(stacks, {"spin"})}
    assert len(pids) >= 18, f"samples of {len(pids)} processes of 20"


@check
def processes_of_5_ms_on_an_overlay_are_whole(boot):
    assert "no_overlay" not in boot.facts, "the guest could not mount an overlay"
    check_short(boot, "layered", 20)


# ---- the daemon ----


def profiles(boot, stage):
    """{service: {sample type: sum}} of the files that the daemon wrote."""
    sums = collections.defaultdict(collections.Counter)
    for path in boot.files(f"{stage}/*.pb.gz"):
        p = pprof.load(path)
        kinds = [kind for kind, _ in p.types()]
        for s in p.sample:
            service = p.labels_of(s)["service_name"]
            for kind, value in zip(kinds, s.value):
                sums[service][kind] += value
    return sums


def check_services(boot, stage):
    sums = profiles(boot, stage)
    long, short = (sums[f"{kind}-{stage}"]["samples"] for kind in ("long", "short"))
    assert long >= 10 and short >= 1, f"too few samples: {dict(sums)}"
    # What ran in a group is filed under it, not under its program, but for those that were gone before
    # anything was known of their group.
    assert sums["threads4"]["samples"] <= 0.05 * long + 2, dict(sums)
    assert sums["short5"]["samples"] <= short + 10, dict(sums)


@check
def services_are_known_by_cgroup_v1(boot):
    check_services(boot, "v1")


@check
def services_are_known_by_hybrid_cgroups(boot):
    check_services(boot, "hybrid")


@check
def services_are_known_by_cgroup_v2(boot):
    check_services(boot, "v2")


@check
def the_daemon_keeps_its_laws(boot):
    for stage in ("hybrid", "v2"):
        log = boot.text(f"{stage}.log")
        assert boot.facts.get(f"{stage}_status") == "0", log
        # How much is lost says how slow the emulator is: the kernel's symbols alone take it a second to read.
        daemon.Final(log).check_laws()


def pushed(boot):
    """[Stored] of the requests that the guest's server stored."""
    stored = []
    for head_path in boot.files("pushed/*.head"):
        with open(head_path, encoding="utf-8") as f:
            line, *fields = f.read().splitlines()
        with open(head_path.removesuffix("head") + "body", "rb") as f:
            body = f.read()
        headers = {k.lower(): v.strip() for k, _, v in (x.partition(":") for x in fields if x)}
        assert line == "POST /push.v1.PusherService/Push HTTP/1.1", line
        assert headers["content-type"] == "application/proto", headers
        assert int(headers["content-length"]) == len(body), (head_path, headers, len(body))
        if not body:
            continue  # the question whether there is Push
        for labels, raw, uuid in rules.push_series(body):
            stored += rules.accept(labels, raw, time.time(), meta={"id": uuid})
    return stored


@check
def what_is_pushed_is_what_the_files_have(boot):
    arrived = collections.defaultdict(collections.Counter)
    broken = collections.Counter()
    for p in pushed(boot):
        arrived[p.service].update(p.totals)
        broken.update(pprof.validate_raw(p.meta["raw"], pushed=True))
    assert not broken, broken.most_common(5)
    assert arrived and arrived == profiles(boot, "v2"), f"pushed {dict(arrived)}\nfiles {dict(profiles(boot, 'v2'))}"
    assert daemon.Final(boot.text("v2.log")).sinks.keys() == {"near", "directory"}


@check
def a_processor_may_go_and_come_back(boot):
    log = boot.text("v2.log")
    assert re.search(r"CPU is gone and no longer sampled cpu=1\n(.*\n)*.*CPU came online and is sampled cpu=1", log), log
    sums = profiles(boot, "v2")
    # Both ran for as long; the second only on the processor that had been away.
    away, back = (sums[service]["samples"] for service in ("away", "back"))
    assert away >= 20 and back >= 0.5 * away, f"{away} samples without the processor, then {back} on it"


# ---- its end, and what refuses ----


def check_nothing_left(boot, stage):
    path = boot.path(f"left.{stage}")
    assert os.path.exists(path), "the guest did not come so far"
    assert not boot.text(f"left.{stage}"), boot.text(f"left.{stage}")


@check
def nothing_is_left_after_a_recording(boot):
    check_nothing_left(boot, "record")


@check
def nothing_is_left_after_a_stop(boot):
    check_nothing_left(boot, "hybrid")
    check_nothing_left(boot, "v2")


@check
def nothing_is_left_after_a_kill_of_all(boot):
    assert len(boot.facts["family"].split()) == 4, boot.facts
    check_nothing_left(boot, "killed")


@check
def refusals_say_what_it_is(boot):
    lines = boot.text("refusals").splitlines()
    bad = [line for line in lines if not re.fullmatch(r"ok [\w-]+", line)]
    assert not bad, "\n".join(bad)
    assert len(lines) >= 20, f"only {len(lines)} cases: {lines}"


def check_refused(boot):
    """Of a kernel that flamed refuses: it says so at once, and the kernel takes no harm."""
    assert boot.facts["features_status"] == "69", boot.text("features")
    assert boot.facts["record_status"] != "0", boot.text("record.err")
    assert boot.refusal in boot.text("record.err"), boot.text("record.err")
    the_kernel_complains_of_nothing(boot)
