"""browser - a headless Chromium, driven through its debugging pipe.

Only what the page's test needs: open an address, evaluate JavaScript, real clicks and keys, a
screenshot, and a record of every request and every complaint of the console.
"""

import base64
import json
import os
import select
import tempfile
import time

import harness

CHROMIUM = "/usr/bin/chromium"


class Browser:
    def __init__(self, width=1400, height=900):
        harness.need_program(CHROMIUM)
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        self.profile = tempfile.mkdtemp(dir=harness.scratch())

        # The browser reads commands on descriptor 3 and answers on 4.
        def arrange():
            high_read, high_write = os.dup(to_read), os.dup(to_write)
            while high_read < 10:
                high_read = os.dup(high_read)
            while high_write < 10:
                high_write = os.dup(high_write)
            os.dup2(high_read, 3)
            os.dup2(high_write, 4)

        self.process = harness.start(
            [
                CHROMIUM,
                "--headless=new",
                "--no-sandbox",  # refused to root otherwise
                "--remote-debugging-pipe",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-extensions",
                "--no-first-run",
                "--no-proxy-server",
                # Whatever tries to leave the host fails, and would show as a failed request.
                "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
                f"--user-data-dir={self.profile}",
                f"--window-size={width},{height}",
                "about:blank",
            ],
            close_fds=False,
            preexec_fn=arrange,
            stdin=harness.subprocess.DEVNULL,
            stdout=harness.subprocess.DEVNULL,
            stderr=harness.subprocess.DEVNULL,
            env={**os.environ, "HOME": self.profile, "XDG_CONFIG_HOME": self.profile},
        )
        os.close(to_read)
        os.close(to_write)
        self.buffer = b""
        self.last_id = 0
        self.requests, self.complaints = [], []
        target = self.call("Target.createTarget", {"url": "about:blank"}, None)
        attach = {"targetId": target["targetId"], "flatten": True}
        self.session = self.call("Target.attachToTarget", attach, None)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def close(self):
        for fd in (self.to_browser, self.from_browser):
            os.close(fd)

    # ---- the protocol: JSON texts, each ended by a NUL ----

    def receive(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.from_browser], [], [], left)[0]:
                return None
            chunk = os.read(self.from_browser, 1 << 16)
            if not chunk:
                raise AssertionError("the browser has ended")
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        self.note(message)
        return message

    def note(self, message):
        method, about = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(about["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"]["text"] + " " + about["entry"].get("url", ""))

    def call(self, method, params=None, session="own", seconds=60):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": params or {}}
        if session == "own":
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + seconds
        while True:
            answer = self.receive(max(0, end - time.monotonic()))
            if answer is None:
                raise AssertionError(f"the browser did not answer {method}")
            if answer.get("id") == self.last_id:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    # ---- what a person does ----

    def open(self, url):
        self.call("Page.navigate", {"url": url})
        harness.wait_for(lambda: self.evaluate("document.readyState") == "complete", f"{url} is loaded")

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression, seconds=60):
        return harness.wait_for(lambda: self.evaluate(expression), expression, seconds)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
            )

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})

    def type(self, text):
        self.call("Input.insertText", {"text": text})

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", {"type": kind, "key": key, "code": key})

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", {"format": "png"})["data"]
        with open(path, "wb") as out:
            out.write(base64.b64decode(data))
