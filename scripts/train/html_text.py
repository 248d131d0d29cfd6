"""Text of a documentation page: headings, paragraphs, lists and fenced code, no navigation."""

from __future__ import annotations

import re
from html.parser import HTMLParser

SKIPPED_TAGS = {"script", "style", "nav", "svg", "head", "footer", "form", "button", "select"}
SKIPPED_CLASSES = {
    "headerlink",
    "sphinxsidebar",
    "related",
    "footer",
    "navheader",
    "navfooter",
    "nosearch",
    "menu",
    "submenu",
    "searchmenu",
    "fancy_toc",
    "tagline",
    "toctree-wrapper",
    "indextable",
    "linenos",
    "toc",
    "contents",
    "genindextable",
    "sidebar",
    "nav",
    "viewcode-back",
}
VOID_TAGS = {"br", "hr", "img", "input", "link", "meta", "col", "wbr", "area", "base", "source"}
BLOCKS = {"p", "div", "section", "ul", "ol", "dl", "table", "tr", "dt", "blockquote", "body"}


class _Page(HTMLParser):
    """Collects the text; tags that are skipped count their own nesting."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.skipping: list[str] = []
        self.code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID_TAGS:
            if tag == "br" and not self.skipping:
                self.parts.append("\n")
            return
        classes = set((dict(attrs).get("class") or "").split())
        if self.skipping or tag in SKIPPED_TAGS or classes & SKIPPED_CLASSES:
            self.skipping.append(tag)
            return
        self._open(tag)

    def _open(self, tag: str) -> None:
        if tag == "pre":
            self.code += 1
            self.parts.append("\n\n```\n")
        elif re.fullmatch(r"h[1-6]", tag):
            self.parts.append("\n\n" + "#" * int(tag[1]) + " ")
        elif tag == "li":
            self.parts.append("\n\n* ")
        elif tag in ("td", "th"):
            self.parts.append(" | ")
        elif tag in BLOCKS:
            self.parts.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID_TAGS:
            return
        if self.skipping:
            if tag in self.skipping:
                while self.skipping.pop() != tag:
                    pass
            return
        if tag == "pre" and self.code:
            self.code -= 1
            self.parts.append("\n```\n\n")
        elif re.fullmatch(r"h[1-6]", tag) or tag in BLOCKS:
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        if not self.skipping:
            self.parts.append(data if self.code else re.sub(r"\s+", " ", data))


def page_text(html: str) -> str:
    """The main text of a page, paragraphs separated by one empty line."""
    start = re.search(r'<(div|main|section)[^>]*role="main"[^>]*>', html)
    page = _Page()
    page.feed(html[start.start() :] if start else html)
    return tidy("".join(page.parts))


def tidy(text: str) -> str:
    """No trailing blanks, no runs of empty lines, no pilcrows, no empty code fences."""
    text = text.replace("\u00b6", "").replace("\u00a0", " ").replace("\r", "")
    text = re.sub(r"[ \t]+\n", "\n", text)
    text = re.sub(r"\n[ \t]*\* *\n+", "\n* ", text)
    text = re.sub(r"```\n+", "```\n", text)
    text = re.sub(r"\n+```(?=\n)", "\n```", text)
    text = re.sub(r"(?m)^ (?=\S)", "", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def plain(fragment: str) -> str:
    """One line of text from a small piece of HTML."""
    page = _Page()
    page.feed(fragment)
    return re.sub(r"\s+", " ", "".join(page.parts)).replace("\u00b6", "").strip()
