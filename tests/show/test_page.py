"""The report in Chromium: what a reader can do with it, and that it shows what Python computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gptlab.comparing.assemble import compare
from gptlab.show.report.page import write_report
from tests.support.browser import Browser, browser
from tests.support.hostile import make_hostile
from tests.support.seeded import Arm, make_seeded
from tests.support.trained import make_trained

pytestmark = pytest.mark.slow

TABLE = (
    "return [...document.querySelectorAll('#verdicts-table tbody tr')]"
    ".map(r => [...r.children].map(c => c.textContent))"
)
HEADS = (
    "return [...document.querySelectorAll('#verdicts-table thead th')].filter(h => !h.hidden).map(h => h.textContent)"
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = make_trained(tmp_path_factory.mktemp("trained"), diverged="relu")
    return folder, write_report(folder)


@pytest.fixture
def page(chromium: Browser, trained: tuple[Path, Path]) -> Browser:
    chromium.look()
    chromium.open(trained[1])
    return chromium


def choose(page: Browser, select: str, value: str) -> None:
    page.js(
        "const s = document.getElementById(arguments[0]); s.focus();"
        "s.value = [...s.options].find(o => o.text === arguments[1]).value;"
        "s.dispatchEvent(new Event('change', {bubbles: true}))",
        select,
        value,
    )


def column(page: Browser, header: str) -> list[str]:
    """The visible cells below a header."""
    return page.js(
        "const t = document.getElementById('verdicts-table');"
        "const h = [...t.querySelectorAll('thead th')].filter(h => !h.hidden);"
        "const k = h.findIndex(h => h.textContent === arguments[0]);"
        "return [...t.querySelectorAll('tbody tr')].map(r => [...r.children[k].childNodes]"
        ".filter(node => node.nodeName !== 'SMALL').map(node => node.textContent).join(''))",
        header,
    )


def status(page: Browser) -> str:
    return page.js("return document.querySelector('#verdicts .status').textContent")


def test_what_the_script_draws_is_what_the_file_said(
    chromium: Browser, trained: tuple[Path, Path], tmp_path: Path
) -> None:
    hostile = make_hostile(tmp_path)
    for path in (trained[1], write_report(hostile)):
        chromium.open(path, scripts=False)
        chromium.cdp("Emulation.setScriptExecutionDisabled", value=False)
        heads = "return [...document.querySelectorAll('#verdicts-table thead th')].map(h => 'extra' in h.dataset)"
        extra = chromium.js(heads)
        written = [[text for text, hide in zip(row, extra, strict=True) if not hide] for row in chromium.js(TABLE)]
        runs = TABLE.replace("verdicts", "runs")
        written_runs = chromium.js(runs)
        chromium.open(path)
        assert chromium.js(TABLE) == written
        assert chromium.js(runs) == written_runs
        assert not chromium.complaints()


def test_sorting_and_what_it_says_of_itself(page: Browser) -> None:
    click = "document.querySelector('#verdicts-table th[data-key=difference] button').click()"
    planned = column(page, "variant")
    page.js(click)
    rising = [text for text in column(page, "difference") if text]
    assert rising == sorted(rising, key=float)
    assert column(page, "difference")[-1] == ""  # the baseline has none, and stays below
    sort = "return document.querySelector('#verdicts-table th[data-key=difference]').getAttribute('aria-sort')"
    assert page.js(sort) == "ascending"
    assert status(page) == "6 variants; sorted by difference, rising."
    page.js(click)
    assert [text for text in column(page, "difference") if text] == rising[::-1]
    assert page.js(sort) == "descending"
    page.js(click)
    assert column(page, "variant") == planned
    assert page.js(sort) == "none"


def test_filtering(page: Browser) -> None:
    find = page.driver.find_element("id", "verdicts-filter")
    find.send_keys("CLEAR expan")
    assert column(page, "variant") == ["expansion_2"]
    assert status(page) == "1 of 6 variants."
    find.clear()
    find.send_keys("no such thing")
    assert column(page, "variant") == []
    runs = page.driver.find_element("id", "runs-filter")
    runs.send_keys("diverged")
    assert page.js("return document.querySelectorAll('#runs-table tbody tr').length") == 1


def test_hiding_columns(page: Browser) -> None:
    def toggle(key: str) -> None:
        page.js("document.querySelector(`#verdicts .columns input[value=${arguments[0]}]`).click()", key)

    assert "r" not in page.js(HEADS)
    toggle("correlation")
    toggle("changed")
    assert "r" in page.js(HEADS)
    assert "changed" not in page.js(HEADS)
    assert float(column(page, "r")[1]) <= 1
    assert len(page.js(TABLE)[0]) == len(page.js(HEADS))


def test_another_baseline_and_another_metric(page: Browser, trained: tuple[Path, Path]) -> None:
    choose(page, "baseline", "rmsnorm")
    expected = compare([trained[0]], baseline="rmsnorm")
    assert column(page, "variant")[0] == "rmsnorm"
    assert dict(zip(column(page, "variant"), column(page, "verdict"), strict=True)) == {
        row.label: row.cell("loss").said for row in expected.rows
    }
    changes = dict(zip(column(page, "variant"), column(page, "changed"), strict=True))
    assert changes["rmsnorm"] == "(baseline)"
    assert changes["wide"] == "activation: rmsnorm \N{RIGHTWARDS ARROW} wide"
    assert status(page) == "6 variants; loss, differences to rmsnorm."
    assert "Differences to rmsnorm." in page.js("return document.getElementById('verdicts-caption').textContent")
    choose(page, "metric", "grad_norm")
    assert page.js("return document.getElementById('baseline').disabled")
    assert "Differences to none." in page.js("return document.getElementById('verdicts-caption').textContent")
    assert page.js("return document.querySelector('#verdicts-caption .what').textContent") == "grad_norm"
    assert all(text.startswith("x") for text in column(page, "difference") if text)
    shown = set(page.js(HEADS))
    assert {"changed", "parameters %"} <= shown  # of the variant, whatever the metric
    assert not {"%", "r", "noise units"} & shown  # those of the primary metric are not this one's
    choose(page, "metric", "loss")
    assert not page.js("return document.getElementById('baseline').disabled")
    assert column(page, "variant")[0] == "none"
    assert not page.complaints()


def test_no_request_leaves_the_page(page: Browser, trained: tuple[Path, Path]) -> None:
    choose(page, "baseline", "wide")
    page.pdf()
    assert page.requests() == [trained[1].as_uri()]
    assert page.complaints() == []
    # The policy holds even against a script of the page's own, and is what stops it.
    page.js("fetch('https://example.org/').catch(() => 0); new Image().src = 'https://example.org/x.png'")
    page.driver.execute_async_script("setTimeout(arguments[0], 100)")
    assert page.requests(stopped=False) == []
    assert any("Content Security Policy" in text for text in page.complaints())


def test_hostile_names_do_nothing(chromium: Browser, tmp_path: Path) -> None:
    path = write_report(make_hostile(tmp_path))
    chromium.open(path)
    for label in ("none", "__proto__"):
        choose(chromium, "baseline", label)
    chromium.driver.find_element("id", "verdicts-filter").send_keys("<img")
    chromium.js("document.querySelectorAll('thead button').forEach(b => b.click())")
    assert "owned" not in chromium.js("return document.title").split(":")[-1].replace("document.title='owned'", "")
    assert (
        chromium.js("return document.querySelectorAll('img, [onload], [onerror], script').length") == 2
    )  # our two scripts
    assert chromium.requests() == [path.as_uri()]
    assert chromium.complaints() == []


def test_by_keyboard_alone(page: Browser) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys: str) -> None:
        for key in keys:
            ActionChains(page.driver).send_keys(key).perform()

    def focused() -> str:
        return page.js("return document.activeElement.id || document.activeElement.textContent.trim()")

    page.js("document.body.focus()")
    press(Keys.TAB)
    assert focused() == "Skip to the verdicts"
    outline = "const s = getComputedStyle(document.activeElement); return [s.outlineStyle, parseFloat(s.outlineWidth)]"
    seen = []
    for _ in range(60):
        press(Keys.TAB)
        seen.append(focused())
        style, width = page.js(outline)
        assert (style, width >= 2) == ("solid", True), seen[-1]
        if seen[-1] == "difference":
            break
    assert {"metric", "baseline", "verdicts-filter", "Columns"} <= set(seen)
    press(Keys.ENTER)
    assert "sorted by difference" in status(page)
    assert focused() == "difference"  # where it was


def test_a_screen_reader_finds_its_way(page: Browser) -> None:
    nodes = page.cdp("Accessibility.getFullAXTree")["nodes"]
    roles: dict[str, list[str]] = {}
    for node in nodes:
        roles.setdefault(node.get("role", {}).get("value", ""), []).append(node.get("name", {}).get("value", ""))
    assert {"columnheader", "rowheader", "table", "heading", "navigation", "main", "status"} <= roles.keys()
    for role in ("button", "combobox", "searchbox", "region", "table", "image", "checkbox", "link"):
        assert all(roles.get(role, ["x"])), f"a {role} without a name"
    assert any(name.startswith("loss in nats/token") for name in roles["table"])
    levels = page.js("return [...document.querySelectorAll('h1, h2, h3')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert max(levels) == 2


CONTRAST = """
const linear = x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
const light = color => {
  const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map(x => linear(x / 255));
  return .2126 * r + .7152 * g + .0722 * b;
};
const behind = element => {
  for (; element; element = element.parentElement) {
    const color = getComputedStyle(element).backgroundColor;
    if (!/, 0\\)$|transparent/.test(color)) return color;
  }
  return "rgb(255, 255, 255)";
};
const poor = [];
for (const element of document.querySelectorAll("body *")) {
  if (element.closest("svg, script, [hidden], .unseen, .skip")) continue;
  if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
  const [a, b] = [light(getComputedStyle(element).color), light(behind(element))].sort((x, y) => y - x);
  const ratio = (a + .05) / (b + .05);
  if (ratio < 4.5) poor.push([element.tagName, element.className, element.textContent.slice(0, 20), ratio]);
}
return poor;
"""


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_can_be_read(page: Browser, dark: bool) -> None:
    page.look(dark=dark)
    paper = page.js("return getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(22, 24, 27)" if dark else "rgb(255, 255, 255)")
    assert page.js(CONTRAST) == []
    figure = page.js("return getComputedStyle(document.querySelector('figure svg path')).fill")
    assert figure == paper


def test_narrow_screens_scroll_the_tables_and_not_the_page(page: Browser) -> None:
    page.look(width=360, height=740)
    assert page.js("return document.documentElement.scrollWidth") <= 360


def test_a_phone_shows_the_verdicts_first_and_has_all_else(chromium: Browser, trained: tuple[Path, Path]) -> None:
    chromium.look(width=360, height=740)
    chromium.open(trained[1])
    assert chromium.js(HEADS) == ["variant", "difference", "verdict"]
    right = "return document.querySelector('#verdicts-table thead th:last-child').getBoundingClientRect().right"
    assert chromium.js(right) <= 360
    assert not chromium.js("return document.querySelector('.audit').open")
    boxes = "return [...document.querySelectorAll('#verdicts .columns input')].map(box => box.value)"
    assert {"mean", "changed", "p_corrected"} <= set(chromium.js(boxes))
    letters = (
        "const s = document.querySelector('figure svg');"
        "return 9 * s.getBoundingClientRect().width / s.viewBox.baseVal.width"
    )
    assert chromium.js(letters) > 8  # pixels, of nine points: the figure scrolls in its own box
    broken = (
        "return [...document.querySelectorAll('main tbody th')].filter(h => h.textContent.includes('expansion_'))"
        ".map(h => h.innerHTML)"
    )
    assert set(chromium.js(broken)) == {"expansion_<wbr>2"}


def test_printed_it_is_light_and_whole(page: Browser) -> None:
    page.look(dark=True, media="print")
    assert page.js("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.js("return getComputedStyle(document.querySelector('.tools')).display") == "none"
    assert page.js(CONTRAST) == []
    assert page.pdf().startswith(b"%PDF")


def test_without_scripts_it_is_a_document(chromium: Browser, trained: tuple[Path, Path]) -> None:
    chromium.open(trained[1], scripts=False)
    chromium.cdp("Emulation.setScriptExecutionDisabled", value=False)
    text = chromium.js("return document.body.innerText")
    assert "no clear difference" in text
    assert "on 4 of 5 seeds" in text
    assert chromium.js("return document.querySelector('.tools').hidden")
    assert chromium.js("return document.querySelectorAll('thead button').length") == 0


def test_rows_that_wait_for_the_first_paint_are_there_with_scripts_and_without(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gptlab.show.report.page.figures", lambda *_: iter(()))
    arms = [Arm("none", {1: 3.0}), *(Arm(f"x{k:02}", {1: 3.1 + k}, {"n_layers": 3 + k}) for k in range(29))]
    path = write_report(make_seeded(tmp_path, arms))
    visible = (
        "return [...document.querySelectorAll('#verdicts-table tbody tr')]"
        ".filter(r => r.getClientRects().length).map(r => r.firstElementChild.textContent)"
    )
    chromium.open(path, scripts=False)
    chromium.cdp("Emulation.setScriptExecutionDisabled", value=False)
    assert chromium.js("return document.querySelectorAll('#verdicts-table tbody').length") == 2
    assert len(chromium.js(TABLE)) == 30
    chromium.open(path)
    assert chromium.js(visible) == [arm.label for arm in arms]
    assert chromium.js("return document.querySelectorAll('#verdicts-table tbody').length") == 1
