"""A browser window for tests, and where their pictures go."""
import contextlib
import os
import pathlib
import time

BUILD = pathlib.Path(os.environ.get("SWITCHYARD_BUILD", pathlib.Path(__file__).resolve().parent.parent.parent / "build"))
SHOTS = BUILD / "screenshots"


class Window:
    """A browser window that remembers every complaint: console errors, exceptions, requests to anybody but the daemon."""

    def __init__(self, browser, home, width=1280, height=900, theme="light"):
        self.home, self.faults = home, []
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20000)
        self.page.on("console", self.complaint)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.faults.append(f"asks {request.url}") if not request.url.startswith(home.url + "/") else None)

    def complaint(self, message):
        if message.type in ("error", "warning") and "willReadFrequently" not in message.text:  # that one is about this test's own reading
            self.faults.append(message.text)

    def open(self, route="/runs"):
        self.page.goto(f"{self.home.url}/#token={self.home.token}{route}")
        return self.page

    def close(self):
        self.context.close()
        assert not self.faults, self.faults


@contextlib.contextmanager
def window(browser, home, **options):
    one = Window(browser, home, **options)
    yield one
    one.close()


def until(what, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = what()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError("did not happen in time")
