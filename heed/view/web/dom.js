// Elements, words made harmless, numbers as text.
// Words only ever reach the page as text, never as markup.

export const $ = (id) => document.getElementById(id);

// Properties are set as they are; `aria` and `data` by name, `on` as listeners.
export function element(name, properties = {}, children = []) {
  const { aria = {}, data = {}, on = {}, role, ...others } = properties;
  const made = Object.assign(document.createElement(name), others);
  if (role) made.setAttribute("role", role);
  for (const [key, value] of Object.entries(aria)) made.setAttribute(`aria-${key}`, value);
  for (const [key, value] of Object.entries(data)) made.dataset[key] = value;
  for (const [event, listener] of Object.entries(on)) made.addEventListener(event, listener);
  made.append(...children);
  return made;
}

// What stays as it is must not be set again: a browser would lay out the page anew.
export const put_attribute = (item, name, value) => item.getAttribute(name) === value || item.setAttribute(name, value);
export const put_style = (item, name, value) => item.style.getPropertyValue(name) === value || item.style.setProperty(name, value);

// What steers is a dot: control characters, line breaks, directional overrides.
const steering = /[\p{Cc}\u061C\u200E\u200F\u2028\u2029\u202A-\u202E\u2066-\u2069]/gu;
export const label_of = (text) => `${text}`.replace(steering, "·");
export const word = (text) => element("bdi", { textContent: label_of(text) });

// A text's direction is that of its first letter.
const right_to_left = /[\u0590-\u08FF\uFB1D-\uFDFF\uFE70-\uFEFF\u{10800}-\u{10FFF}\u{1E800}-\u{1EFFF}]/u;
export const direction = (words) =>
  right_to_left.test(words.join("").match(/\p{L}/u)?.[0] ?? "") ? "rtl" : "ltr";

const broken = "no number"; // what JSON's null stands for
export const decimals = (value, count = 2) => (value === null ? broken : value.toFixed(count).replace("-", "−"));
export const percent = (p) =>
  p === null ? broken : p >= 0.0995 ? `${(100 * p).toFixed(0)} %` : p >= 0.001 ? `${(100 * p).toFixed(1)} %` : "< 0.1 %";
export const exact = (value) => (value === null ? broken : value >= 0.0995 ? value.toFixed(3) : `${Number(value.toPrecision(3))}`.replace("-", "−"));

export const within = (value, low, high) => Math.min(high, Math.max(low, value));
export const large = () => innerWidth >= 1900; // a wall, not a desk: page.css has the same bound
const reduced = matchMedia("(prefers-reduced-motion: reduce)");
export const still = () => reduced.matches;

// New children. Whoever stood on a button stands on the one of the same name or, without one, in its place.
export function refill(box, children) {
  const all = () => [...box.querySelectorAll("button")], name = (b) => b.title + b.textContent;
  const before = all(), at = before.indexOf(document.activeElement);
  box.replaceChildren(...children);
  if (at < 0) return;
  const now = all(), same = now.find((b) => name(b) === name(before[at]));
  (same ?? now[Math.min(at, now.length - 1)])?.focus({ preventScroll: true });
}

// The choices of a <select>, hidden where there is nothing to choose.
export function offer(select, choices, chosen) {
  const before = [...select.options].map((o) => `${o.value}\n${o.text}`).join("\n");
  if (before !== choices.map(([value, text]) => `${value}\n${text}`).join("\n"))
    select.replaceChildren(...choices.map(([value, text]) => new Option(text, value)));
  if (select.value !== `${chosen}`) select.value = `${chosen}`;
  const label = select.closest("label"), hide = choices.length < 2;
  if (label.hidden !== hide) label.hidden = hide;
}

// One of several elements in a row can be reached by Tab, the others by arrows.
export function roving(group, items, at) {
  items.forEach((item, i) => (item.tabIndex = i === at ? 0 : -1));
  group.onkeydown = (event) => {
    const here = items.indexOf(event.target);
    const back = getComputedStyle(group).direction === "rtl" ? "ArrowRight" : "ArrowLeft";
    const move = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -1, ArrowRight: 1, Home: -items.length, End: items.length }[event.key];
    if (here < 0 || !move || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const sign = back === "ArrowRight" && event.key.startsWith("ArrowL") ? 1 : back === "ArrowRight" && event.key.startsWith("ArrowR") ? -1 : move;
    const next = items[within(here + (Math.abs(move) === 1 ? sign : move), 0, items.length - 1)];
    items.forEach((item) => (item.tabIndex = item === next ? 0 : -1));
    next.focus();
  };
}
