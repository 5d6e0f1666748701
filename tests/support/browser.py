"""Chromium without a window, driven through its own protocol: what the report's tests and benchmarks look through."""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # whatever is asked for by name cannot be had
)


class Browser:
    """One page at a time. `requests` and `complaints` are those since the last `open`."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, *, scripts: bool = True) -> None:
        """Load the file and wait until its tables are live."""
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        self._events()
        self.driver.get_log("browser")
        self.driver.get(path.as_uri())
        if scripts:
            from selenium.webdriver.support.ui import WebDriverWait

            WebDriverWait(self.driver, 30).until(lambda _: self.js("return document.documentElement.dataset.ready"))

    def js(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function in the page."""
        return self.driver.execute_script(script, *arguments)

    def cdp(self, command: str, **arguments: Any) -> Any:
        """Chromium's own protocol."""
        return self.driver.execute_cdp_cmd(command, arguments)

    def requests(self, *, stopped: bool = True) -> list[str]:
        """Every address that was asked for since `open`; without `stopped`, those that the policy let through."""
        events = self._events()
        ended = {e["params"]["requestId"] for e in events if e["params"].get("blockedReason") == "csp"}
        sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [p["request"]["url"] for p in sent if stopped or p["requestId"] not in ended]

    def complaints(self) -> list[str]:
        """What the console said since `open`."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False, media: str = "") -> None:
        """Window size and media."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.cdp("Emulation.setEmulatedMedia", media=media, features=scheme)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.cdp("Emulation.setDeviceMetricsOverride", **size)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the page."""
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        printed = self.cdp("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        return base64.b64decode(printed["data"])

    def _events(self) -> list[dict[str, Any]]:
        return [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own. Skips where there is no Chromium; under CI=true that is a failure."""
    missing = [path for path in (CHROMIUM, DRIVER) if not Path(path).exists()]
    if missing:
        reason = f"no {' and no '.join(missing)} here (Debian packages chromium and chromium-driver)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    profile = tempfile.mkdtemp(prefix="gptlab-chromium-")
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = Chrome(options, Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)
