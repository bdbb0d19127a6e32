"""packaging_files - what the container and service files of the tree say, for the tests of them."""

import functools
import os
import re

import yaml

import harness

DAEMONSET = os.path.join(harness.ROOT, "config/kubernetes/daemonset.yaml")
CONTAINERFILE = os.path.join(harness.ROOT, "Containerfile")


def capabilities():
    """{"BPF", ...}: what agent and reader hold, from the one table (agent/rights.h)."""
    with open(os.path.join(harness.ROOT, "agent/rights.h"), encoding="utf-8") as f:
        text = f.read()
    lists = re.findall(r"^#define RIGHTS_(?:AGENT|READER)\(X\) (.*)$", text, re.M)
    assert len(lists) == 2, lists
    return {name for one in lists for name in re.findall(r"X\((\w+)\)", one)}


@functools.cache
def documents():
    with open(DAEMONSET, encoding="utf-8") as f:
        return list(yaml.safe_load_all(f))


def daemonset():
    (found,) = [d for d in documents() if d["kind"] == "DaemonSet"]
    return found


def container():
    (found,) = daemonset()["spec"]["template"]["spec"]["containers"]
    return found


def environment(node_name):
    """What the kubelet would set."""
    variables = {}
    for entry in container()["env"]:
        if "value" in entry:
            variables[entry["name"]] = entry["value"]
        else:
            assert entry["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}, entry
            variables[entry["name"]] = node_name
    return variables


def container_packages():
    """The Debian packages of the last stage of the Containerfile."""
    with open(CONTAINERFILE, encoding="utf-8") as f:
        stage = f.read().split("\nFROM ")[-1].replace("\\\n", " ")
    return re.search(r"--no-install-recommends ([^&]*)&&", stage)[1].split()
