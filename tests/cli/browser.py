"""Headless Chromium, driven as its own developer tools drive it: messages over two pipes, nothing else needed."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class BrowserError(Exception):
    pass


class Browser:
    """One window with one page. Events are real ones: they go through hit testing, styles and painting."""

    def __init__(self, folder, width=1400, height=900):
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        command = [PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   f"--user-data-dir={folder}", f"--window-size={width},{height}", "--remote-debugging-pipe",
                   "about:blank"]
        # The browser reads from descriptor 3 and writes to descriptor 4.
        shell = ["sh", "-c", f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"', "sh", *command]
        self.process = subprocess.Popen(shell, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.buffer, self.session = 0, b"", None
        self.complaints = []  # what a console would show in red or yellow
        self.events = []
        pages = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def close(self):
        """The browser ends by itself when its pipe does."""
        for end in (self.write_end, self.read_end):
            os.close(end)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def message(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            if not select.select([self.read_end], [], [], max(0, end - time.monotonic()))[0]:
                raise BrowserError(f"the browser said nothing for {seconds} s")
            more = os.read(self.read_end, 1 << 20)
            if not more:
                raise BrowserError("the browser has ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        self.note(message)
        return message

    def note(self, message):
        method, params = message.get("method"), message.get("params")
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(one.get("value")) for one in params["args"]))
        elif method:
            self.events.append(method)

    def call(self, method, seconds=120, **params):
        """The result of a command of the developer tools' protocol."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        text = json.dumps(request).encode() + b"\0"
        while text:
            text = text[os.write(self.write_end, text):]
        while True:
            message = self.message(seconds)
            if message.get("id") != self.number:
                continue
            if "error" in message:
                raise BrowserError(f"{method}: {message['error']['message']}")
            return message["result"]

    def open(self, address):
        """Opens a page and waits for its load event; returns seconds."""
        self.events.clear()
        start = time.monotonic()
        self.call("Page.navigate", url=address)
        while "Page.loadEventFired" not in self.events:
            self.message(120)
        self.painted()
        return time.monotonic() - start

    def value(self, script):
        """What a piece of script comes to, promises awaited."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise BrowserError(done["exceptionDetails"].get("exception", {}).get("description", "the script failed"))
        return done["result"].get("value")

    def painted(self):
        """Waits until what was changed is on the screen."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def timed(self, action):
        """Seconds until what the action changed is on the screen."""
        start = time.monotonic()
        action()
        self.painted()
        return time.monotonic() - start

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def drag(self, x, y, to_x, to_y):
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        for step in range(1, 6):
            self.mouse("mouseMoved", x + (to_x - x) * step / 5, y + (to_y - y) * step / 5, button="left", buttons=1)
        self.mouse("mouseReleased", to_x, to_y, button="left", clickCount=1)

    def wheel(self, x, y, delta):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key):
        codes = {"Enter": 13, "Escape": 27}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
