"""The judge of neighbouring frames (calls.py) finds nothing wrong in what is right, and what is wrong."""

import calls
import harness
import pprof
from harness import once, workload


@once
def recorded():
    return harness.record(command=[workload("chain_c"), "1"]).path


def judge(change=None):
    """(followed, wrong) when each stack is changed: a list of locations, leaf first."""
    profile = pprof.load(recorded())
    names = {}
    for location in profile.location:
        lines = [profile.function[line.function_id - 1] for line in location.line]
        names[location.id] = profile.string(lines[0].name) if lines else ""
    for sample in profile.sample:
        if change:
            sample.location_id = change(sample.location_id, names)
    followed, wrong = calls.check(profile)
    return followed, sum(wrong.values())


def test_a_right_chain_has_no_wrong_call():
    followed, wrong = judge()
    assert followed > 300 and not wrong, (followed, wrong)


def test_a_frame_that_is_left_out_is_found():
    for lost in "abc":
        followed, wrong = judge(lambda ids, names, lost=lost: [i for i in ids if names[i] != lost])
        assert wrong > 80, (lost, followed, wrong)


def test_a_frame_too_many_is_found():
    def twice(ids, names):
        return [i for i in ids for _ in range(1 + (names[i] == "b"))]

    followed, wrong = judge(twice)
    assert wrong > 80, (followed, wrong)


def test_frames_in_another_order_are_found():
    followed, wrong = judge(lambda ids, names: ids[:2] + ids[3:1:-1] + ids[4:])
    assert wrong > 80, (followed, wrong)
