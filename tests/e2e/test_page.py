"""The page as a person sees it: a headless Chromium against a running daemon."""

import json
import os

import harness
from browser import Browser
from daemon import Daemon, fetch, free_port, program

#: Where the picture of the page goes; README's is a copy of it.
PICTURE = os.path.join(harness.ROOT, "build", "page.png")

ROWS = "[...document.querySelectorAll('#top tbody tr')]"
#: The middle of the widest drawn rectangle of a function's: [x, y] on the screen, or null.
PLACE = """(() => {
	const { graph } = flamed, box = graph.canvas.getBoundingClientRect();
	const of = graph.rects.filter((r) => graph.frames[graph.tree.frame[r[3]]]?.name === NAME);
	const [x, y, w] = of.sort((a, b) => b[2] - a[2])[0] ?? [];
	return x === undefined ? null : [box.left + x + w / 2, box.top + y + 9];
})()"""


def place(browser, name):
    return browser.wait_for(PLACE.replace("NAME", json.dumps(name)))


def text(browser, selector):
    return browser.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")


def start():
    """A daemon with its page, and a program that works in a known function: (daemon, service)."""
    path, service = program("chain_c")
    harness.start([path, "1000"])
    for name in ("chain_cpp", "threads4", "syscall_loop"):
        harness.start([harness.workload(name), "1000"])
    listen = f"127.0.0.1:{(port := free_port())}"
    daemon = Daemon({"page": {"listen": listen}, "labels": {"hostname": "web-1"}})
    daemon.page_port = port
    return daemon, service


def check_origin(browser, daemon):
    """No request has left for anywhere but the daemon's page."""
    origin = f"http://127.0.0.1:{daemon.page_port}/"
    foreign = [r for r in browser.requests if not r.startswith((origin, "data:", "about:"))]
    assert browser.requests and not foreign, foreign
    assert not browser.complaints, browser.complaints


def test_the_page_shows_searches_and_zooms():
    daemon, service = start()
    browser = Browser()
    browser.open(f"http://127.0.0.1:{daemon.page_port}/{daemon.token}/")

    # The busy function stands in the table and in the graph; the service in the list.
    browser.wait_for(f"{ROWS}.some((tr) => tr.querySelector('.name').textContent === 'spin')")
    browser.wait_for(f"[...document.querySelectorAll('#services .name')].some((e) => e.textContent === '{service}')")
    browser.wait_for("document.querySelectorAll('#services li').length > 5")
    browser.evaluate("flamed.graph.drawNow()")
    browser.screenshot(PICTURE)
    x, y = place(browser, "spin")
    browser.move(x, y)
    browser.wait_for("!document.querySelector('#tip').hidden")
    assert text(browser, "#tip").startswith("spin\n"), text(browser, "#tip")
    assert "self" in text(browser, "#tip")

    # A filter: its stacks are the program's alone.
    browser.evaluate(f"[...document.querySelectorAll('#services button')].find((b) => b.title === '{service}').click()")
    browser.wait_for(f"location.hash.includes('{service}')")
    browser.wait_for(f"document.querySelector('#flame').dataset.service === '{service}'")
    chain = browser.evaluate("""(() => {
        const { tree, frames } = flamed.graph;
        const leaf = [...tree.frame.keys()].filter((i) => frames[tree.frame[i]]?.name === 'spin')
            .sort((a, b) => tree.total[b] - tree.total[a])[0];
        return tree.path(leaf).map((i) => frames[tree.frame[i]]?.name ?? '');
    })()""")
    assert chain[-5:] == ["main", "a", "b", "c", "spin"], chain

    # A search counts what matches, nothing twice, and dims the rest.
    browser.evaluate("document.querySelector('#search').focus()")
    browser.type("SPIN")
    browser.wait_for("document.querySelector('#matched').textContent.includes('matched')")
    matched = float(text(browser, "#matched").split(" ")[0])
    assert 90 < matched <= 100, matched
    browser.wait_for("document.querySelectorAll('#top tr.matched').length > 0")
    browser.evaluate("document.querySelector('#search').value = ''; document.querySelector('#search').dispatchEvent(new Event('input'))")
    assert text(browser, "#matched") == ""

    # A click zooms: the function becomes as wide as the graph; Escape goes back.
    x, y = place(browser, "c")
    browser.click(x, y)
    browser.wait_for("!document.querySelector('#reset').hidden")
    zoomed = browser.evaluate("flamed.graph.frames[flamed.graph.tree.frame[flamed.graph.zoom]].name")
    assert zoomed == "c", zoomed
    browser.wait_for("flamed.graph.rects.find((r) => r[3] === flamed.graph.zoom)?.[2] === flamed.graph.box.clientWidth")
    browser.evaluate("document.activeElement.blur()")
    browser.press("Escape")
    browser.wait_for("document.querySelector('#reset').hidden && flamed.graph.zoom === 0")

    # The processes, with what is known of each.
    browser.evaluate("document.querySelector('#tab-processes').click()")
    browser.wait_for(f"document.querySelector('#processes').textContent.includes('service_name={service}')")

    check_origin(browser, daemon)
    browser.close()
    daemon.stop()


def test_a_hundred_thousand_nodes_are_drawn_at_once():
    """The renderer's own cost, with a tree that no host of ours has."""
    daemon, _ = start()
    browser = Browser()
    browser.open(f"http://127.0.0.1:{daemon.page_port}/{daemon.token}/")
    browser.wait_for("flamed.graph.rects.length > 1")
    drawn = browser.evaluate("""(async () => {
        const { Tree } = await import('./flame.js');
        const c = { parent: [-1], frame: [-1], self: [0], total: [100000 * 40] };
        for (let stack = 0; stack < 2500; stack++) {
            for (let depth = 0, p = 0; depth < 40; depth++) {
                c.parent.push(p); c.frame.push(depth); c.self.push(0); c.total.push(1600);
                p = c.parent.length - 1;
            }
        }
        const frames = Array.from({ length: 40 }, (_, i) => ({ name: 'f' + i, module: 'm' }));
        document.querySelector('#live').checked = false;
        flamed.graph.show(new Tree(c), frames);
        flamed.graph.drawNow();
        const { tree } = flamed.graph, rows = flamed.graph.rows();
        flamed.graph.zoom = 30;
        const below = flamed.graph.rows();
        flamed.graph.zoom = 0;
        return [c.parent.length, flamed.graph.rects.length, tree.maxDepth, rows, below];
    })()""")
    assert drawn[0] == 100001 and drawn[2:] == [40, 41, 41], drawn
    # 2 500 stacks, each narrower than a pixel: what is drawn is bounded by the screen.
    assert 1000 < drawn[1] < 60000, drawn
    check_origin(browser, daemon)
    browser.close()
    daemon.stop()


def test_a_page_that_nobody_looks_at_asks_for_nothing():
    daemon, _ = start()
    browser = Browser()
    browser.open(f"http://127.0.0.1:{daemon.page_port}/{daemon.token}/")
    browser.wait_for("flamed.graph.rects.length > 1")
    browser.evaluate("""(() => {
        globalThis.asked = 0;
        const { fetch } = globalThis;
        globalThis.fetch = (...all) => { globalThis.asked++; return fetch(...all); };
        globalThis.see = (state) => {
            Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });
            document.dispatchEvent(new Event('visibilitychange'));
        };
        // The clock of the page runs a hundred times faster.
        globalThis.turns = 0;
        const { setTimeout } = globalThis;
        globalThis.setTimeout = (fn, ms) => setTimeout(() => { globalThis.turns++; fn(); }, ms / 100);
    })()""")
    browser.wait_for("turns > 1 && asked > 3")
    browser.evaluate("see('hidden')")
    browser.evaluate("globalThis.turns = 0")
    browser.wait_for("turns > 3")  # what was under way is over
    browser.evaluate("globalThis.turns = globalThis.asked = 0")
    browser.wait_for("turns > 5")
    assert browser.evaluate("asked") == 0
    browser.evaluate("see('visible')")
    browser.wait_for("asked > 3")
    check_origin(browser, daemon)
    browser.close()
    daemon.stop()


def test_nothing_is_shown_without_the_token():
    daemon, service = start()
    daemon.wait_windows(2)
    browser = Browser()
    for path in ("/", "/api/v1/status", "/api/v1/services", f"/{'0' * 32}/", f"/{'0' * 32}/api/v1/query",
                 "/app.js", "/debug/pprof/profile?seconds=1", f"/{daemon.token[:-1]}/"):  # fmt: skip
        status, headers, body = fetch(daemon.page_port, path)
        assert status == 401, (path, status)
        said = body.decode() + str(headers)
        assert service not in said and daemon.token not in said and b"<script" not in body, (path, said)
    browser.open(f"http://127.0.0.1:{daemon.page_port}/")
    shown = browser.evaluate("document.documentElement.outerHTML")
    assert service not in shown and "canvas" not in shown, shown
    # A page elsewhere cannot read it either, whatever it knows.
    status, headers, _ = fetch(daemon.page_port, f"/{daemon.token}/api/v1/status", {"Origin": "http://evil.example"})
    assert "Access-Control-Allow-Origin" not in headers
    status, _, _ = fetch(daemon.page_port, f"/{daemon.token}/api/v1/status", {"Host": "evil.example"})
    assert status in (400, 403, 421), status
    browser.close()
    daemon.stop()
