// Two lines of words and ribbons between them, as thick as the weights. A row's ribbons are one
// word thick together, since its weights sum to one; where a word is read by many, they narrow
// towards it. Several heads lie side by side, each in its colour.

import { colors, shade } from "./palette.js";
import { element, put_style, still } from "./dom.js";
import { draw_line, extents, fit, gap_of, word_shapes } from "./lines.js";
import { raster } from "./raster.js";

const weakest = 0.004, most_of_row = 14; // what is thinner is not drawn
const most_at_rest = 1600, most_in_motion = 800; // ribbons, so that a frame is in time
const move_time = 260, parts_at_rest = 5; // ms; frames of the last picture

export const make_ribbons = () => {
  const figure = element("div", { className: "ribbons" }, [
    element("div", { className: "line source", role: "group" }),
    element("div", { className: "between" }, [element("canvas", { aria: { hidden: "true" } })]),
    element("div", { className: "line target", role: "group" }),
  ]);
  figure.motion = { begin: 0, frame: 0, shown: none };
  return figure;
};

// The weight above which at most so many of these lie, none of equals left out while another is drawn;
// none (-1) where all are drawn or all are equal.
export function bound_of(weights, most) {
  if (weights.length <= most) return -1;
  const sorted = Float64Array.from(weights).sort(), bound = sorted[weights.length - 1 - most];
  return bound < sorted[weights.length - 1] ? bound : -1;
}

// Ribbons as numbers, so that a frame makes no objects. `names` tells head, row and column of each and
// rises; `at` has five numbers of each: its weight, its ends at the source, its ends at the target.
const fields = 5;
const name_of = (h, i, j) => (h << 24) | (i << 12) | j;
const head_of = (name) => name >> 24, row_of = (name) => (name >> 12) & 4095, column_of = (name) => name & 4095;
const ribbons_of = (names) => ({ names, at: new Float32Array(names.length * fields), alpha: new Float32Array(names.length), fill: new Uint8Array(names.length) });
const none = ribbons_of([]);

// Which weights of some heads, [{ weights, whole }], are drawn.
function names_of(heads, most) {
  const names = [], rows = heads[0]?.weights.length ?? 0;
  const each = Math.max(1, Math.min(most_of_row, Math.floor(most / (rows * heads.length))));
  heads.forEach(({ weights, whole }, h) => weights.forEach((row, i) => {
    const least = weakest * whole[i], bound = Math.max(least, bound_of(row.filter((w) => w > least), each));
    for (let j = 0; j < row.length; ++j) if (row[j] > bound) names.push(name_of(h, i, j));
  }));
  return names;
}

// Where they lie between words at these places. Ends lie in the order of the words at their other ends,
// so that ribbons of a word do not cross.
function placed(names, heads, { rows, columns }) {
  const middle = ([a, b]) => (a + b) / 2, size = ([a, b]) => b - a, from_right = (places) => places.length > 1 && places[0][0] > places[1][0];
  const thick = Math.min(26, ...rows.map((r) => size(r) * 0.8)) / Math.max(1, heads.length);
  const out = ribbons_of(names), { at } = out, in_row = rows.map(() => 0), in_column = columns.map(() => 0);
  names.forEach((name, n) => {
    const { weights, whole } = heads[head_of(name)], i = row_of(name), j = column_of(name), w = Math.min(1, weights[i][j] / whole[i]);
    at[n * fields] = w, in_row[i] += w * thick, in_column[j] += w * thick;
  });
  const narrow = in_column.map((sum, j) => Math.min(1, (size(columns[j]) * 0.9) / (sum || 1)));
  const row_at = rows.map((r, i) => middle(r) - in_row[i] / 2);
  const column_at = columns.map((c, j) => middle(c) - (in_column[j] * narrow[j]) / 2);
  for (let begin = 0, end = 0; begin < names.length; begin = end) { // head by head
    while (end < names.length && head_of(names[end]) === head_of(names[begin])) ++end;
    const last = begin + end - 1, source_back = from_right(columns), target_back = from_right(rows);
    for (let k = begin; k < end; ++k) {
      const t = source_back ? last - k : k, s = target_back ? last - k : k, i = row_of(names[t]), j = column_of(names[s]);
      at[t * fields + 3] = row_at[i], at[t * fields + 4] = row_at[i] += at[t * fields] * thick;
      at[s * fields + 1] = column_at[j], at[s * fields + 2] = column_at[j] += at[s * fields] * thick * narrow[j];
    }
  }
  return out;
}

// The ribbons of some heads, at most so many; kept as long as words stay where they are.
const known = new WeakMap();
function ribbons_between(heads, places, most) {
  if (!known.has(heads)) known.set(heads, new Map());
  const kept = known.get(heads), before = kept.get(most);
  if (before?.places.key === places.key) return before.ribbons;
  const ribbons = placed(before?.ribbons.names ?? names_of(heads, most), heads, places);
  kept.set(most, { places, ribbons });
  return ribbons;
}

// A way from some ribbons to others: what is on one side alone has no width on the other.
function way_between(from, to) {
  const most = from.names.length + to.names.length, names = [], begin = new Float32Array(most * fields), end = new Float32Array(most * fields);
  const put = (list, { at }, k, wide) => {
    for (let o = names.length * fields, f = 0; f < fields; ++f) list[o + f] = at[k * fields + f];
    if (wide) return;
    const o = names.length * fields;
    list[o] = 0, list[o + 1] = list[o + 2] = (list[o + 1] + list[o + 2]) / 2, list[o + 3] = list[o + 4] = (list[o + 3] + list[o + 4]) / 2;
  };
  for (let a = 0, b = 0; a < from.names.length || b < to.names.length; ) {
    const name = Math.min(from.names[a] ?? Infinity, to.names[b] ?? Infinity);
    const leaves = from.names[a] === name, comes = to.names[b] === name;
    if (comes || from.at[a * fields] > weakest) {
      put(begin, leaves ? from : to, leaves ? a : b, leaves);
      put(end, comes ? to : from, comes ? b : a, comes);
      names.push(name);
    }
    a += leaves, b += comes;
  }
  return { begin, end, now: ribbons_of(names) };
}
function go({ begin, end, now }, share) {
  for (let k = 0; k < now.at.length; ++k) now.at[k] = begin[k] + (end[k] - begin[k]) * share;
  return now;
}

// How ribbons look: what is looked at in its own colour, what is not written yet pale.
const is_lit = (name, { row, column }) => (row >= 0 || column >= 0) && (row < 0 || row_of(name) === row) && (column < 0 || column_of(name) === column);
function color(ribbons, { heads, look, dim }) {
  const { names, at, alpha, fill } = ribbons, some = look.row >= 0 || look.column >= 0;
  for (let n = 0; n < names.length; ++n) {
    const share = shade(at[n * fields]), lit = is_lit(names[n], look);
    alpha[n] = row_of(names[n]) > dim ? 0.05 : some && !lit ? 0.05 + 0.13 * share : 0.2 + 0.65 * share;
    fill[n] = heads > 1 ? head_of(names[n]) : +lit;
  }
  return ribbons;
}
const fills_of = (heads) => (heads > 1 ? colors().heads : [colors().ink, colors().lit]);

// As shapes of a scene, those that are looked at above the others, in few shades; moved by x and y.
function ribbon_scene({ names, at, alpha, fill }, { fills, look, down, length, x, y }) {
  const groups = new Map();
  names.forEach((name, n) => {
    const lit = is_lit(name, look), step = Math.round(alpha[n] * 12) / 12 || 0.05, key = `${lit} ${fill[n]} ${step}`;
    if (!groups.has(key)) groups.set(key, { lit, ribbons: [], fill: fills[fill[n]], alpha: step, down });
    const [, s0, s1, t0, t1] = at.subarray(n * fields, (n + 1) * fields);
    const shape = down ? [s0, 0, s1, 0, t1, length, t0, length] : [0, s0, 0, s1, length, t1, length, t0];
    groups.get(key).ribbons.push(shape.map((v, i) => v + (i % 2 ? y : x)));
  });
  return [...groups.values()].sort((a, b) => a.lit - b.lit || a.alpha - b.alpha);
}

const eased = (begin, now) => (still() ? 1 : 1 - (1 - Math.min(1, (now - begin) / move_time)) ** 3);

// `matrices`: one, or one for each head.
export function draw_ribbons(figure, { width, matrices, key, look, dim, forced, names, waiting }) {
  const [source, frame, target] = figure.children, canvas = frame.firstChild;
  const { rows, columns } = matrices[0];
  const room = waiting ? [...rows, ...columns.slice(rows.length)] : rows;
  const { down, size } = fit([columns, room], width);
  figure.classList.toggle("down", down);
  put_style(figure, "--size", `${size}px`);
  draw_line(source, { labels: columns, axis: "column", name: names.columns });
  // What is still being written begins where it will stay: its words are as far apart as the source's.
  target.classList.toggle("grows", waiting);
  if (waiting && !down) put_style(target, "--gap", `${gap_of(source)}px`);
  draw_line(target, { labels: rows, axis: "row", name: names.rows, grey: dim, forced });
  const box = frame.getBoundingClientRect(), length = down ? box.width : box.height;
  const places = { rows: extents(target, frame, down), columns: extents(source, frame, down) };
  places.key = JSON.stringify([places.rows, places.columns]);
  const to = matrices[0].weights ? matrices : [], motion = figure.motion, style = { heads: to.length, look, dim };
  const goes_on = motion.places?.key === places.key && motion.heads === to.length && `${motion.rows}` === `${rows}` && `${motion.columns}` === `${columns}`;
  if (motion.key !== key || !goes_on) {
    // Between heads of the same words ribbons move, from wherever they are; others grow from nothing.
    motion.way = way_between(goes_on ? motion.shown : none, ribbons_between(to, places, most_in_motion));
    if (motion.key !== key) motion.begin = performance.now();
    Object.assign(motion, { key, places, heads: to.length, rows, columns });
  }
  const at_rest = () => color(ribbons_between(to, places, most_at_rest), style);
  figure.scene = () => whole_scene(figure, { ribbons: at_rest(), fills: fills_of(to.length), look, down: !down, length, size });
  const put = (ribbons, how) => raster(canvas, ribbons, { width: box.width, height: box.height, down: !down, paper: colors().paper, fills: fills_of(to.length), ...how });
  let moved = false;
  const step = (now) => {
    const share = eased(motion.begin, now);
    if (share < 1) {
      moved = true;
      motion.shown = go(motion.way, share);
      put(color(motion.shown, style), { coarse: true });
      motion.frame = requestAnimationFrame(step);
      return;
    }
    motion.shown = ribbons_between(to, places, most_in_motion);
    if (moved) settle(0);
    else put(at_rest());
  };
  // What has moved is drawn finely part by part, so that no frame is late.
  const settle = (part) => {
    put(at_rest(), { part: [part / parts_at_rest, (part + 1) / parts_at_rest] });
    motion.frame = part + 1 < parts_at_rest ? requestAnimationFrame(() => settle(part + 1)) : 0;
  };
  cancelAnimationFrame(motion.frame);
  motion.frame = requestAnimationFrame(step);
}

// With its words, to be taken along.
function whole_scene(figure, { ribbons, size, ...how }) {
  const [source, between, target] = figure.children, box = figure.getBoundingClientRect(), frame = between.getBoundingClientRect();
  const width = figure.scrollWidth, height = figure.scrollHeight, x = frame.left - box.left + figure.scrollLeft, y = frame.top - box.top + figure.scrollTop;
  const words = word_shapes([source, target], figure, size);
  return {
    width, height, name: "Attention between two sentences",
    shapes: [{ rect: [0, 0, width, height], fill: colors().paper }, ...ribbon_scene(ribbons, { ...how, x, y }), ...words],
  };
}
