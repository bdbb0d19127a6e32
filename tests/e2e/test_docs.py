"""README.md and docs/: commands that parse, settings that load, links that lead somewhere."""

import glob
import os
import re
import subprocess

import harness
from harness import ROOT, flamed

PAGES = [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs/*.md")))]
#: What a line of an indented block is a command by.
PROGRAMS = r"(sudo|make|flamed|curl|podman|kubectl|systemctl|go tool|editor|echo)\b"


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def blocks(language):
    """[(page, text)] of the fenced blocks of a language."""
    return [(page, m[1]) for page in PAGES for m in re.finditer(rf"^```{language}\n(.*?)^```$", read(page), re.M | re.S)]


def commands():
    """Those of fenced blocks, and those that are only indented."""
    indented = [(page, m[1]) for page in PAGES for m in re.finditer(rf"^    ({PROGRAMS}.*)$", read(page), re.M)]
    found = blocks("sh") + indented
    assert len(found) >= 5, found
    return found


def test_every_command_parses():
    for page, text in commands():
        done = subprocess.run(["/bin/bash", "-n"], input=text, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, (page, text, done.stderr)


def test_no_shell_takes_a_url_for_a_pattern():
    """zsh refuses a word with ? or * that is no file; & would end the command in any shell."""
    for page, text in commands():
        for url in re.findall(r"\S*://\S*[?*&]\S*", text):
            assert url[0] == "'" and "'" in url[1:], (page, url)
    for page in PAGES:
        for code in re.findall(r"`((?:curl|go tool)[^`]*)`", read(page)):
            assert not re.search(r"(^| )[^'\" ]*://[^'\" ]*[?*&]", code), (page, code)


def test_every_target_of_make_that_is_named_exists():
    out = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True).stdout
    targets = set(re.findall(r"^  ([a-z-]+) +\S", out, re.M))
    assert {"deps", "all", "install", "run", "check"} <= targets, targets
    named = {t for page in PAGES for t in re.findall(r"(?:`|&& |sudo |^)make ([a-z-]+)", read(page), re.M)}
    assert named and named <= targets | {"help"}, named - targets
    phony = set(re.findall(r"^([a-z-]+):", read(os.path.join(ROOT, "Makefile")) + read(os.path.join(ROOT, "tests/tests.mk")), re.M))
    assert targets <= phony, targets - phony


def test_every_setting_that_is_shown_loads():
    shown = blocks("yaml")
    assert len(shown) >= 3, shown
    for page, text in shown:
        path = harness.scratch_file(".yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        done = flamed("--check-config", "--config", path)
        assert done.returncode == 0 and not done.stderr, (page, text, done.stderr)


def anchors(page):
    """As a forge makes them of headings."""
    heads = re.findall(r"^#+ (.*)$", read(page), re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def dead_links(pages):
    dead = []
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", read(page)):
            path, _, anchor = link.partition("#")
            if "://" in link:
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(target) or (anchor and anchor not in anchors(target)):
                dead.append((page, link))
    return dead


def test_every_link_leads_somewhere():
    assert not dead_links(PAGES)


def test_every_link_of_what_is_installed_leads_somewhere():
    dest = harness.scratch_file(".dest")
    argv = ["make", "-C", ROOT, "-o", "all", f"BIN={harness.BIN}", f"DESTDIR={dest}", "PREFIX=/usr", "install"]
    subprocess.run(argv, check=True, capture_output=True)
    installed = os.path.join(dest, "usr/share/doc/flamed")
    pages = [os.path.join(installed, os.path.relpath(page, ROOT)) for page in PAGES]
    assert not dead_links(pages)
