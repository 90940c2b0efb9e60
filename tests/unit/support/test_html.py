from html.parser import HTMLParser

from difftest.support.html import code, element, panel, table


class Events(HTMLParser):
    """The tags and texts of a piece of HTML, in order."""

    def __init__(self, html):
        super().__init__()
        self.events = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.events.append((tag, dict(attributes).get("title")))

    def handle_data(self, data):
        self.events.append(data)


def test_children_keep_their_order_and_texts_are_escaped():
    made = element("p", "a < b", element("b", "&amp;"), "<i>", "c", title='"x" <y>')
    assert Events(panel("#fff", made)).events == [
        ("div", None),
        ("p", '"x" <y>'),
        "a < b",
        ("b", None),
        "&amp;",
        "<i>c",
    ]


def test_a_table_has_its_headings_and_its_numbers_on_the_right():
    made = table(
        ["name", "count"], [["<x>", "12"]], caption="all", numbers=[False, True]
    )
    html = panel("#fff", made)
    assert html.count("text-align: right") == 2
    assert [event for event in Events(html).events if isinstance(event, str)] == [
        "all",
        "name",
        "count",
        "<x>",
        "12",
    ]
    assert "th" not in [
        event[0] for event in Events(panel("#fff", table((), [["x"]]))).events
    ]


def test_characters_that_no_encoding_has_are_written_as_escapes():
    assert "\\ud800" in panel("#fff", code("\ud800"))
