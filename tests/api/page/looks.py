"""The looks that a part of the page is tested at, and what must hold in each."""

from typing import NamedTuple

import pytest

from tests.api.support.browser import Page

CONTRAST_MIN = 4.5
"""WCAG 2.2, level AA, for text of this size."""
CONTRASTS = """(selector) => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (parts(colour).length === 3) return colour;
    }
  };
  const light = (colour) => {
    const [r, g, b] = parts(colour).map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  return [...document.querySelectorAll(selector)].filter((each) => each.textContent.trim())
    .map((each) => [light(getComputedStyle(each).color), light(ground(each))])
    .map(([one, other]) => Math.max(one, other) / Math.min(one, other));
}"""


class Look(NamedTuple):
    """A window and a colour scheme."""

    width: int
    is_dark: bool


LOOKS = (Look(1280, False), Look(400, True))
in_every_look = pytest.mark.parametrize(
    "look", LOOKS, ids=lambda look: f"{look.width}-{'dark' if look.is_dark else 'light'}"
)


async def show_as(page: Page, look: Look) -> None:
    """Give the window its size and colours."""
    await page.look(look.width, 900, dark=look.is_dark, still=True)


async def check_look(page: Page, *selectors: str) -> None:
    """Assert that texts are legible, that nothing sticks out, and that the console is silent."""
    for selector in selectors:
        found = await page.run(f"({CONTRASTS})({selector!r})")
        assert found, selector
        assert min(found) >= CONTRAST_MIN, (selector, found)
    assert await page.run("document.documentElement.scrollWidth <= innerWidth")
    unnamed = (
        "[...document.querySelectorAll('button, select, input:not([hidden])')].filter((e) =>"
        " !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML)"
    )
    assert await page.run(unnamed) == []
    assert page.complaints == []
