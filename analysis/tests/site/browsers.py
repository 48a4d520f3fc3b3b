"""Chromium and Firefox for the tests of pages: `browser_tab` is a fixture that gives a tab of each in turn.

A tab has the calls of Playwright's Page that the tests use. Playwright drives the system's Chromium, but no Firefox
other than its own: that one is driven by Marionette, the protocol that every Firefox speaks
(https://firefox-source-docs.mozilla.org/testing/marionette/Protocol.html).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.files import root

SITE = root() / "site"
LONG = 60_000  # ms that a busy machine may take
CHROMIUMS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "google-chrome-stable")
FIREFOXES = ("firefox-esr", "firefox")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # WebDriver's name of a reference
KEYS = {"ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015", "Home": "\ue011",
        "Enter": "\ue007", "Tab": "\ue004"}  # fmt: skip


def installed(names: tuple[str, ...]) -> str:
    """The first program of these that is on the PATH; the test is skipped where there is none."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if not found:
        pytest.skip(f"none of {', '.join(names)} is on the PATH: install one, with `apt-get install {names[0]}`")
    return found


def playwright() -> Any:
    try:
        return importlib.import_module("playwright.sync_api")
    except ImportError:
        pytest.skip("playwright is not installed: run `make check-site`")


class Keyboard:
    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def press(self, key: str) -> None:
        value = KEYS[key]
        strokes = [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self.call("WebDriver:PerformActions", actions=[{"type": "key", "id": "keys", "actions": strokes}])


class Firefox:
    """A tab of Firefox, with the calls of Playwright's Page that the tests use."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LONG / 1000)
        self.numbers = 0
        self.keyboard = Keyboard(self.call)
        self.receive()  # says hello
        self.call("WebDriver:NewSession", capabilities={"alwaysMatch": {"pageLoadStrategy": "normal"}})

    def receive(self) -> Any:
        """One message: its length in bytes, a colon, JSON."""
        length = b""
        while not length.endswith(b":"):
            length += self.socket.recv(1)
        text = b""
        while len(text) < int(length[:-1]):
            text += self.socket.recv(int(length[:-1]) - len(text))
        return json.loads(text)

    def call(self, name: str, **arguments: Any) -> Any:
        self.numbers += 1
        text = json.dumps([0, self.numbers, name, arguments]).encode()
        self.socket.sendall(f"{len(text)}:".encode() + text)
        _, _, error, result = self.receive()
        if error:
            raise AssertionError(f"{name}: {error['error']}: {error['message']}")
        return result

    def goto(self, address: str) -> None:
        self.call("WebDriver:Navigate", url=address)

    def evaluate(self, expression: str, *arguments: Any) -> Any:
        """In the page itself, which alone sees what its scripts declare by let and const."""
        called = f"it(...{json.dumps(arguments)})"
        inside = (
            f"(async () => {{ const it = ({expression}); "
            f"return JSON.stringify(await (typeof it === 'function' ? {called} : it)); }})()"
        )
        script = "return window.eval(arguments[0])"
        found = self.call("WebDriver:ExecuteScript", script=script, args=[inside])["value"]
        return None if found in (None, "undefined") else json.loads(found)

    def set_default_timeout(self, _: float) -> None:
        """Every wait takes LONG at most."""

    def wait_for_function(self, expression: str) -> None:
        end = time.monotonic() + LONG / 1000
        while not self.evaluate(f"!!({expression})"):
            if time.monotonic() > end:
                raise AssertionError(f"waited in vain for {expression}")
            time.sleep(0.02)

    def wait_for_selector(self, selector: str, state: str = "attached") -> None:
        self.wait_for_function(f"{'!' * (state == 'detached')}document.querySelector({json.dumps(selector)})")

    def element(self, selector: str) -> str:
        self.wait_for_selector(selector)
        found = self.call("WebDriver:FindElement", using="css selector", value=selector)
        return str(found["value"][ELEMENT])

    def click(self, selector: str) -> None:
        self.call("WebDriver:ElementClick", id=self.element(selector))

    def hover(self, selector: str) -> None:
        element = self.element(selector)
        how = "{block: 'center', behavior: 'instant'}"
        for _ in range(3):  # rows get their height as they come into view
            self.evaluate(f"document.querySelector({json.dumps(selector)}).scrollIntoView({how})")
        move = {"type": "pointerMove", "x": 0, "y": 0, "origin": {ELEMENT: element}}
        self.call("WebDriver:PerformActions", actions=[{"type": "pointer", "id": "mouse", "actions": [move]}])

    def reload(self) -> None:
        self.call("WebDriver:Refresh")

    def focus(self, selector: str) -> None:
        self.wait_for_selector(selector)
        self.evaluate(f"void document.querySelector({json.dumps(selector)}).focus()")

    def fill(self, selector: str, value: str) -> None:
        self.focus(selector)
        self.evaluate(f"void (document.activeElement.value = {json.dumps(value)})")

    def press(self, selector: str, key: str) -> None:
        self.focus(selector)
        self.keyboard.press(key)

    def get_attribute(self, selector: str, name: str) -> str | None:
        self.wait_for_selector(selector)
        found = self.evaluate(f"document.querySelector({json.dumps(selector)}).getAttribute({json.dumps(name)})")
        return None if found is None else str(found)

    def select_option(self, selector: str, value: str) -> None:
        place = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"({place}.value = {json.dumps(value)}, {place}.dispatchEvent(new Event('change')))")

    def inner_text(self, selector: str) -> str:
        self.wait_for_selector(selector)
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def inner_html(self, selector: str) -> str:
        self.wait_for_selector(selector)
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerHTML"))


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """The Chromium of this machine, running."""
    program = installed(CHROMIUMS)
    with playwright().sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def chromium_tab() -> Iterator[Any]:
    with chromium() as browser:
        tab = browser.new_page()
        tab.set_default_timeout(LONG)
        yield tab


@contextlib.contextmanager
def firefox_tab(profile: Path) -> Iterator[Firefox]:
    program = installed(FIREFOXES)
    (profile / "user.js").write_text('user_pref("marionette.port", 0);\n')
    running = subprocess.Popen(
        [program, "--headless", "--marionette", "--no-remote", "--profile", str(profile)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port, end = profile / "MarionetteActivePort", time.monotonic() + LONG / 1000
        while not (port.exists() and port.read_text().strip()):
            assert running.poll() is None and time.monotonic() < end, "Firefox does not start"
            time.sleep(0.1)
        tab = Firefox(int(port.read_text()))
        tab.call("WebDriver:SetWindowRect", width=1280, height=900)
        yield tab
    finally:
        running.terminate()
        running.wait()


@pytest.fixture(scope="module", params=["chromium", "firefox"])
def browser_tab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A tab of each browser that is installed."""
    with chromium_tab() if request.param == "chromium" else firefox_tab(tmp_path_factory.mktemp("firefox")) as tab:
        yield tab
