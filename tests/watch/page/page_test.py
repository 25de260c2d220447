# SPDX-License-Identifier: Apache-2.0
"""The page in headless Chromium: at three widths, dark and light, by keyboard alone."""

import unittest

import browser
import samples
import scheduler
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

# Texts whose contrast with what is behind them is below WCAG's AA.
FAINT = """
const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = (colour) => {
  const [r, g, b] = parse(colour).map((part) => part / 255).map(
    (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if ((parse(colour)[3] ?? 1) > 0) return colour;
  }
};
const faint = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim()) continue;
  if (element.closest("script, noscript, title, [hidden]")) continue;
  const style = getComputedStyle(element);
  const colour = element instanceof SVGElement ? style.fill : style.color;
  const [one, other] = [light(colour), light(behind(element))].sort((a, b) => b - a);
  const contrast = (one + 0.05) / (other + 0.05);
  if (contrast < 4.5) faint.push(`${contrast.toFixed(2)}: ${element.outerHTML}`);
}
return faint;
"""


class PageTest(browser.BrowserCase):
    def setUp(self):
        self.scheduler = scheduler.Scheduler(samples.healthy()).__enter__()
        self.addCleanup(self.scheduler.__exit__)
        # Before the scheduler goes: the console of the next test is to have lines of that alone.
        self.addCleanup(self.driver.get, "about:blank")
        browser.look(self.driver, 1600)
        self.driver.get_log("browser")

    def open(self, state=None, token=scheduler.TOKEN):
        if state is not None:
            self.scheduler.become(state)
        self.driver.get("%s/?token=%s" % (self.scheduler.address, token))
        if token == scheduler.TOKEN:
            self.wait(lambda: self.by_id("link").text == "live")

    def become(self, state):
        self.scheduler.become(state)

    def test_nothing_is_wider_than_the_window(self):
        for name in ("stopped_worker", "many_workers", "hostile", "policy", "forming"):
            self.open(getattr(samples, name)())
            for look in self.looks():
                self.assert_fits([name, look])

    def test_at_320_tables_do_not_scroll_sideways_either(self):
        browser.look(self.driver, 320)
        self.open(samples.many_workers())
        wide = (
            "return [...document.querySelectorAll('.box')].filter("
            "(box) => box.scrollWidth > box.clientWidth).length"
        )
        self.assertEqual(0, self.driver.execute_script(wide))

    def test_every_text_has_the_contrast_of_aa(self):
        for name in ("stopped_worker", "many_workers", "raw_pulls", "policy"):
            self.open(getattr(samples, name)())
            for look in self.looks():
                self.assertEqual([], self.driver.execute_script(FAINT), [name, look])

    def test_dark_and_light_differ(self):
        self.open()
        seen = set()
        for scheme in browser.SCHEMES:
            browser.look(self.driver, 800, scheme=scheme)
            seen.add(
                self.driver.find_element(By.TAG_NAME, "body").value_of_css_property(
                    "background-color"
                )
            )
        self.assertEqual(2, len(seen))

    def test_nothing_moves_for_those_who_want_that(self):
        self.open()
        for reduced, animation in ((True, "none"), (False, "come")):
            browser.look(self.driver, 800, reduced_motion=reduced)
            event = self.driver.find_element(By.CSS_SELECTOR, "#events li")
            self.assertEqual(animation, event.value_of_css_property("animation-name"))

    def test_the_policy_of_the_server_allows_all_of_it(self):
        self.open(samples.stopped_worker())
        self.open(samples.many_workers())
        self.assertEqual([], self.driver.get_log("browser"))

    def test_a_stopped_worker_is_named(self):
        self.open()
        self.assertFalse(self.by_id("notes").is_displayed())
        self.become(samples.stopped_worker())
        self.wait(lambda: "round 1825 waits 12 s for worker 1" in self.by_id("notes").text)
        [slow] = self.driver.find_elements(By.CSS_SELECTOR, ".node.slow")
        self.assertIn("worker 1", slow.text)
        self.assertIn("last call push 12 s ago, at train.py:31", slow.text)
        self.assertIn("not heard for 12 s", slow.text)
        self.assertEqual("! resnet: running - slimps", self.driver.title)
        self.become(samples.healthy())
        self.wait(lambda: not self.by_id("notes").is_displayed())

    def test_the_advice_is_shown(self):
        self.open(samples.raw_pulls())
        self.assertIn("Advice: pulls take 23.8 MB/s raw, 30 times", self.by_id("notes").text)
        self.assertIn("190 Mbit/s", self.by_id("figures").text)
        self.assertIn("Pulls: raw.", self.by_id("decision").text)
        self.assertTrue(self.by_id("no-keys").is_displayed())

    def test_what_a_policy_decides_is_shown_with_its_reasons(self):
        self.open(samples.policy())
        self.assertIn("Policy lgreco decides by tensor.", self.by_id("decision").text)
        self.assertNotIn("Pushes:", self.by_id("decision").text)
        self.assertIn("576 bytes for uniform's 584", self.by_id("keys").text)
        self.assertTrue(self.by_id("no-times").is_displayed())

    def test_of_many_workers_those_in_trouble_have_cards(self):
        self.open(samples.many_workers())
        workers = "#nodes .worker .nodes:not(.dense) .node b"
        named = [each.text for each in self.driver.find_elements(By.CSS_SELECTOR, workers)]
        self.assertEqual(["worker 17", "worker 40", "worker 62", "worker 63"], named)
        tiles = self.driver.find_elements(By.CSS_SELECTOR, "#nodes .dense .node")
        self.assertEqual(64, len(tiles))
        self.assertIn("Workers: 60 of 64 there", self.by_id("nodes").text)

    def test_a_job_that_forms_shows_what_is_not_known(self):
        self.open(samples.forming())
        self.assertIn("the job waits for 1 worker; there: ", self.by_id("notes").text)
        self.assertIn("Nothing is decided yet.", self.by_id("decision").text)
        self.assertEqual([], self.driver.get_log("browser"))

    def test_names_of_peers_are_only_text(self):
        self.open(samples.hostile())
        self.assertIn(samples.HOSTILE, self.column("tensors", 1))
        self.assertEqual([], self.driver.find_elements(By.TAG_NAME, "img"))
        self.assertEqual([], self.driver.get_log("browser"))
        self.assertEqual("! %s: running - slimps" % samples.HOSTILE, self.driver.title)

    def test_tab_reaches_every_button_and_enter_sorts(self):
        self.open(samples.policy())
        for width in browser.WIDTHS:
            browser.look(self.driver, width)
            reached = []
            for focused in self.tab_round():
                self.assertNotEqual("none", focused.value_of_css_property("outline-style"))
                reached.append(focused.text)
            self.assertEqual("Skip to the job", reached[0])
            named = ("Pause", "Elements", "Servers", "Rounds", "Pushed ▼", "Pulled", "Reason")
            for label in named:
                self.assertIn(label, reached)

    def test_sorting_says_its_direction_and_keeps_focus(self):
        self.open()
        button = self.driver.find_element(By.CSS_SELECTOR, "#tensors [data-column=elements]")
        self.driver.execute_script("arguments[0].focus()", button)
        for direction, first in (
            ("descending", "s:layer3.0.conv2.weight"),
            ("ascending", "s:layer1.0.bn1.bias"),
        ):
            self.press(Keys.ENTER)
            self.assertEqual(first, self.column("tensors", 1)[0])
            head = self.driver.switch_to.active_element.find_element(By.XPATH, "..")
            self.assertEqual(direction, head.get_attribute("aria-sort"))
        self.assertEqual(1, len(self.driver.find_elements(By.CSS_SELECTOR, "#tensors [aria-sort]")))
        named = self.driver.find_element(By.CSS_SELECTOR, "#tensors [data-column=name]")
        named.send_keys(Keys.SPACE)
        names = self.column("tensors", 1)
        self.assertEqual(sorted(names), names)

    def test_the_skip_link_leads_to_the_job(self):
        self.open()
        self.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
        self.press(Keys.ENTER)
        self.assertEqual("main", self.driver.switch_to.active_element.get_attribute("id"))

    def test_new_events_come_on_top_and_are_said_once(self):
        self.open()
        events = self.by_id("events")
        self.wait(lambda: events.get_attribute("aria-live") == "polite")
        oldest = events.find_elements(By.TAG_NAME, "li")
        state = samples.healthy()
        state["events"].append({"t": 185.0, "text": "worker 1 is gone"})
        self.become(state)
        self.wait(lambda: "worker 1 is gone" in events.text)
        lines = events.find_elements(By.TAG_NAME, "li")
        self.assertEqual("03:05\nworker 1 is gone", lines[0].text)
        self.assertEqual(oldest, lines[1:], "the others are the same elements")

    def test_silence_is_said_and_over_when_it_is(self):
        self.open()
        self.become(None)
        self.wait(lambda: self.by_id("link").text == "no answer")
        self.wait(lambda: self.by_id("silent").text.startswith("since "))
        self.become(samples.healthy())
        self.wait(lambda: self.by_id("link").text == "live")
        self.assertEqual("", self.by_id("silent").text)

    def test_a_scheduler_that_is_back_is_heard_again(self):
        self.open()
        port = self.scheduler.server_port
        self.scheduler.__exit__()
        self.wait(lambda: self.by_id("link").text == "no answer")
        with scheduler.Scheduler(samples.stopped_worker(), port):
            self.wait(lambda: self.by_id("link").text == "live")
            self.wait(lambda: "worker 1" in self.by_id("notes").text)

    def test_the_end_of_a_job_is_no_failure_of_the_link(self):
        over = samples.healthy()
        over["job"]["phase"] = "done"
        self.open(over)
        self.become(None)
        self.wait(lambda: self.by_id("link").text == "the job is over; this is its last state")

    def test_a_token_that_holds_no_more_is_named(self):
        self.open()
        port = self.scheduler.server_port
        self.scheduler.__exit__()
        with scheduler.Scheduler(samples.healthy(), port, token="another"):
            self.wait(lambda: self.by_id("link").text == "the token is not this job's")

    def test_a_stream_that_says_nothing_is_opened_again(self):
        self.open()
        self.scheduler.mute()
        self.wait(lambda: self.by_id("link").text == "no answer")
        self.become(samples.stopped_worker())
        self.wait(lambda: self.by_id("link").text == "live")
        self.assertIn("worker 1", self.by_id("notes").text)

    def test_a_refusal_of_the_stream_is_said(self):
        self.open()
        port = self.scheduler.server_port
        self.scheduler.__exit__()
        with scheduler.Scheduler(samples.healthy(), port) as full:
            full.full = True
            self.wait(lambda: self.by_id("link").text == "refused (503): 16 pages are open")
            full.full = False
            self.wait(lambda: self.by_id("link").text == "live")

    def test_a_state_that_cannot_be_shown_is_no_answer(self):
        self.open()
        self.become({"job": {}})
        self.wait(lambda: self.by_id("link").text == "no answer")

    def test_pausing_keeps_what_is_shown(self):
        self.open()
        pause = self.by_id("pause")
        pause.send_keys(Keys.ENTER)
        self.assertEqual("true", pause.get_attribute("aria-pressed"))
        self.become(samples.stopped_worker())
        pause_over = self.driver.execute_async_script(
            "const done = arguments[0]; const other = new EventSource('events' + location.search);"
            "other.onmessage = () => { other.close(); setTimeout(done, 100, 'heard'); };"
        )
        self.assertEqual("heard", pause_over)
        self.assertFalse(self.by_id("notes").is_displayed())
        pause.send_keys(Keys.ENTER)
        self.wait(lambda: self.by_id("notes").is_displayed())


if __name__ == "__main__":
    unittest.main()
