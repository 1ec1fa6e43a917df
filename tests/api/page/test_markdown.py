"""Markdown on the page: what it becomes, that nothing in it runs, and that streams end the same."""

import json
from random import Random
from typing import Any

import pytest

from tests.api.conftest import serving
from tests.api.support import browser
from tests.api.support.browser import Page
from tests.api.support.fake_engine import FakeEngine

LOAD = """
const { Words } = await import('/page/words.js');
const flat = (node) => node.nodeType === 3 ? node.textContent
  : `<${node.tagName.toLowerCase()}${node.href ? '=' + node.getAttribute('href') : ''}>` +
    [...node.childNodes].map(flat).join('') + '</>';
const draw = (text, tokens = []) => {
  const words = new Words('Answer');
  words.draw({ text, tokens });
  return words.box;
};
"""
CASES = {
    "plain *it* **bold** ~~gone~~ `a*b*`": "<p>plain <em>it</> <strong>bold</> <del>gone</> "
    "<code>a*b*</></>",
    "**a *b* c** snake_case_name 2*3*4 \\*x\\*": "<p><strong>a <em>b</> c</> snake_case_name "
    "2<em>3</>4 *x*</>",
    "# One\ntext\n## Two ##": "<h3>One</><p>text</><h3>Two</>",
    "- a\n- b\n  1. c\n  2. d\n- e": "<ul><li>a</><li>b<ol><li>c</><li>d</></></><li>e</></>",
    "3. x\n4. y\n\nz": "<ol><li>x</><li>y</></><p>z</>",
    "> a\n> > b\n\nc": "<blockquote><p>a</><blockquote><p>b</></></><p>c</>",
    "---": "<hr></>",
    "[ok](https://a.b/c) [no](javascript:alert) <https://x.y>": "<p><a=https://a.b/c>ok</> "
    "[no](javascript:alert) <<a=https://x.y>https://x.y</>></>",
    "see https://a.b/c_d_e. Or ![pic](http://c.d)": "<p>see <a=https://a.b/c_d_e>https://a.b/c_d_e</>"
    ". Or <a=http://c.d>pic</></>",
    "<img src=x onerror=alert(1)> &amp; <b>": "<p><img src=x onerror=alert(1)> &amp; <b></>",
    "**open *and `never": "<p>**open *and `never</>",
}  # fmt: skip
CODE = '```py\nif a < b:\n    print("<b>")\n```\nafter'
TABLE = "| a | b |\n|---|:-:|\n| `1` | 2 |\n| x |"
BITS = (
    "a", "b ", " ", "\n", "\n\n", "*", "**", "_", "~~", "`", "```", "```\n", "~~~", "- ", "1. ",
    "> ", "# ", "|", "|---|\n", "[", "](", "](https://a.b)", ")", "\\", "<b>", "<script>", "  ",
    "https://a.b/", "javascript:", "é🙂", "\u2028", "![", "---\n", "\t", "&lt;",
)  # fmt: skip
ALLOWED = {
    "P", "EM", "STRONG", "DEL", "CODE", "PRE", "A", "UL", "OL", "LI", "BLOCKQUOTE", "HR", "TABLE",
    "THEAD", "TBODY", "TR", "TH", "TD", "DIV", "SPAN", "BUTTON", "H3", "H4", "H5", "H6",
}  # fmt: skip


async def run(page: Page, script: str) -> Any:
    return await page.run(f"(async () => {{ {LOAD} {script} }})()")


async def test_markdown_becomes_elements(page: Page) -> None:
    for text, wanted in CASES.items():
        found = await run(
            page,
            f"return [...draw({json.dumps(text)}).childNodes].map(flat).join('')",
        )
        assert found == wanted, text
    code = await run(
        page,
        f"const box = draw({json.dumps(CODE)});"
        "return [box.querySelector('code').textContent, box.lastChild.textContent,"
        " box.querySelector('.code span').textContent]",
    )
    assert code == ['if a < b:\n    print("<b>")', "after", "py"]
    rows = await run(
        page,
        f"return [...draw({json.dumps(TABLE)}).querySelectorAll('tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))",
    )
    assert rows == [["a", "b"], ["1", "2"], ["x"]]


def random_texts(count: int, length: int) -> list[str]:
    rng = Random(5)
    return ["".join(rng.choices(BITS, k=rng.randint(1, length))) for _ in range(count)]


CHECK = """
const cut = (text, dice) => {
  const words = new Words('Answer');
  for (let at = 0; at < text.length;) {
    at = Math.min(text.length, at + 1 + Math.floor(dice() * 9));
    words.draw({ text: text.slice(0, at), tokens: [] });
  }
  return words.box;
};
let seed = 1;
const dice = () => (seed = seed * 16807 % 2147483647) / 2147483647;
return texts.map((text) => {
  const ends = Array.from({ length: Math.ceil(text.length / 3) }, (_, n) =>
    ({ end: Math.min(text.length, 3 * n + 3), origin: 'ngram' }));
  const whole = draw(text), coloured = draw(text, ends);
  const all = [...whole.querySelectorAll('*')];
  let at = 0;
  const said = [...whole.cloneNode(true).childNodes].map((each) => {
    each.querySelectorAll?.('.code > div').forEach((bar) => bar.remove());
    return each.textContent;
  }).join('');
  for (const letter of said) {
    at = text.indexOf(letter, at) + 1;
    if (!at) break;
  }
  return { text, same: whole.isEqualNode(cut(text, dice)),
    colours: coloured.textContent === whole.textContent, ordered: at > 0 || !said,
    tags: [...new Set(all.map((each) => each.tagName))],
    links: all.flatMap((each) => each.href ?? []) };
});
"""


@pytest.mark.parametrize("length", [12, 60])
async def test_any_text_in_any_pieces_is_drawn_safely_and_the_same(
    chromium: int, length: int
) -> None:
    texts = random_texts(400, length)
    async with serving(FakeEngine()) as served, browser.opened(chromium, served.url) as page:
        found = await run(page, f"const texts = {json.dumps(texts)}; {CHECK}")
        assert page.complaints == []
    for each in found:
        assert each["same"] and each["colours"] and each["ordered"], each
        assert set(each["tags"]) <= ALLOWED, each
        assert all(link.startswith(("https://", "http://", "mailto:")) for link in each["links"])


@pytest.mark.parametrize(
    "bit", ["[", "*", "**a ", "`", "> ", "- ", "_a", "|", "[a](", "~~a", "*a "]
)
async def test_no_text_takes_long(chromium: int, bit: str) -> None:
    async with serving(FakeEngine()) as served, browser.opened(chromium, served.url) as page:
        ms = await run(
            page,
            f"const text = {json.dumps(bit)}.repeat(20000); const begun = performance.now();"
            "draw(text); return performance.now() - begun;",
        )
    assert ms < 3000
