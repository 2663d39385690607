// A sentence as a line of words that can be pointed at: a row of buttons or, where that would not
// fit, a column of them.

import { direction, element, label_of, put_attribute, roving, word } from "./dom.js";
import { hover, pin, state } from "./state.js";
import { colors } from "./palette.js";
import { text_width } from "./scene.js";

const smallest = 13, largest = 40, gap = 20; // px; the gap at 16 px
const least_down = 12, line_height = 1.55, high = 0.88; // of columns; of a word's size; of the window

// How large words may be so that both lines fit side by side; `down` where they must be columns.
// Words that are still being written get room, so that nothing jumps when they are there.
export function fit(lines, width) {
  const wide = lines.map((labels) => labels.reduce((sum, l) => sum + Math.min(320, text_width(l, 16)) + gap, 0));
  const size = (16 * width) / Math.max(1, ...wide);
  if (size >= smallest) return { down: false, size: Math.min(largest, size * 0.98) };
  // Columns that fit the window with words somewhat smaller need not scroll; a finger needs room.
  const fits = ((high * innerHeight) / Math.max(...lines.map((labels) => labels.length)) - 1) / line_height;
  return { down: true, size: width < 600 || fits < least_down ? 16 : Math.min(16, fits) };
}

// `axis`: "row" or "column", which of the two pointing at a word chooses.
export function draw_line(line, { labels, axis, name, forced = -1, grey = Infinity }) {
  const same = line.childElementCount === labels.length && labels.every((l, i) => line.children[i].dataset.label === label_of(l));
  if (!same)
    line.replaceChildren(...labels.map((l) => element("button", { type: "button", className: "token", data: { label: label_of(l) } }, [word(l)])));
  if (!same) line.dir = direction(labels);
  put_attribute(line, "aria-label", name);
  const items = [...line.children];
  items.forEach((item, i) => {
    item.classList.toggle("forced", i < forced);
    item.classList.toggle("ahead", i > grey);
    put_attribute(item, "aria-pressed", `${state[axis] === i}`);
  });
  if (!same || !items.some((item) => item.tabIndex === 0)) roving(line, items, 0);
  const at = (event) => items.indexOf(event.target.closest(".token"));
  const look = (i) => (axis === "row" ? hover(i, -1) : hover(-1, i));
  line.onpointerover = (event) => at(event) >= 0 && event.pointerType !== "touch" && look(at(event));
  line.onpointerleave = () => hover(-1, -1);
  line.onfocusin = (event) => event.target.matches(":focus-visible") && look(at(event));
  line.onfocusout = () => hover(-1, -1);
  line.onclick = (event) => {
    const i = at(event);
    if (i < 0) return;
    const again = state[axis] === i && (axis === "row" ? state.column : state.row) < 0;
    if (axis === "row") pin(again ? -1 : i, -1);
    else pin(-1, again ? -1 : i);
  };
}

// Of lines that scroll: what was chosen elsewhere comes into sight.
export function reveal(figure, item) {
  if (!item) return;
  const frame = figure.getBoundingClientRect(), box = item.getBoundingClientRect();
  if (box.top < frame.top || box.bottom > frame.bottom) figure.scrollTop += (box.top + box.bottom - frame.top - frame.bottom) / 2;
}

// How far apart the words of a line are.
export function gap_of(line) {
  const wide = (item) => item.getBoundingClientRect().width;
  return Math.max(0, (wide(line) - [...line.children].reduce((sum, item) => sum + wide(item), 0)) / (line.childElementCount + 1));
}

// Words of lines as shapes of a scene whose corner is that of `frame`.
export function word_shapes(lines, frame, size) {
  const corner = frame.getBoundingClientRect(); // now: a window may have scrolled since they were drawn
  const left = corner.left - frame.scrollLeft, top = corner.top - frame.scrollTop;
  return lines.flatMap((line) => [...line.children]).map((item) => {
    const b = item.getBoundingClientRect();
    return {
      text: item.dataset.label, size, fill: colors().text, anchor: "middle",
      x: (b.left + b.right) / 2 - left, y: (b.top + b.bottom) / 2 - top + size * 0.33,
    };
  });
}

// Where words lie inside `frame`: [begin, end] along the line.
export function extents(line, frame, down) {
  const origin = frame.getBoundingClientRect();
  return [...line.children].map((item) => {
    const box = item.getBoundingClientRect();
    return down ? [box.top - origin.top, box.bottom - origin.top] : [box.left - origin.left, box.right - origin.left];
  });
}
