// Two lines of words and ribbons between them, as thick as the weights. A row's ribbons are one
// word thick together, since its weights sum to one; where a word is read by many, they narrow
// towards it. Several heads lie side by side, each in its colour.

import { colors, head_color, shade } from "./palette.js";
import { element, still } from "./dom.js";
import { draw_line, extents, fit } from "./lines.js";
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
  figure.motion = { from: null, to: null, begin: 0, frame: 0 };
  return figure;
};

// At most so many of [weight, ...], none of equals left out while another is drawn; all, if all are
// equal.
export function strongest(list, most) {
  if (list.length <= most) return list;
  const least = Float64Array.from(list, ([w]) => w).sort()[list.length - 1 - most], kept = list.filter(([w]) => w > least);
  return kept.length > 0 ? kept : list;
}

// Which weights of some heads, [{ weights, whole }], are drawn: { i, j, h }, row, column and head.
const known = new WeakMap(); // of matrices that were drawn before
export function drawn_links(heads, most = most_at_rest) {
  if (!known.has(heads)) known.set(heads, new Map());
  if (known.get(heads).has(most)) return known.get(heads).get(most);
  const links = [], rows = heads[0]?.weights.length ?? 0;
  const each = Math.max(1, Math.min(most_of_row, Math.floor(most / (rows * heads.length))));
  heads.forEach(({ weights, whole }, h) => weights.forEach((row, i) => {
    const kept = [];
    for (let j = 0; j < row.length; ++j) if (row[j] > weakest * whole[i]) kept.push([row[j], j]);
    for (const [, j] of strongest(kept, each)) links.push({ i, j, h });
  }));
  known.get(heads).set(most, links);
  return links;
}

// Numbers of a list by rising keys, which are whole.
const in_order = (list, key) => Float64Array.from(list, (l, n) => key(l) * 65536 + n).sort().map((x) => x % 65536);

// The same with their weights w and where they lie between words at these places: from s0 to s1 at
// the source, from t0 to t1 at the target. One that weighs nothing has a place, too.
export function placed_links(links, heads, rows, columns) {
  const middle = ([a, b]) => (a + b) / 2, size = ([a, b]) => b - a;
  const thick = Math.min(26, ...rows.map((r) => size(r) * 0.8)) / Math.max(1, heads.length);
  const out = links.map(({ i, j, h }) => ({ i, j, h, w: Math.min(1, (heads[h]?.weights[i]?.[j] ?? 0) / (heads[h]?.whole[i] ?? 1)) }));
  const sum_of = (key, count) => {
    const sums = new Array(count).fill(0);
    for (const l of out) sums[l[key]] += l.w * thick;
    return sums;
  };
  const in_row = sum_of("i", rows.length), in_column = sum_of("j", columns.length);
  const narrow = in_column.map((sum, j) => (sum > size(columns[j]) * 0.9 ? (size(columns[j]) * 0.9) / sum : 1));
  const row_at = rows.map((r, i) => middle(r) - in_row[i] / 2);
  const column_at = columns.map((c, j) => middle(c) - (in_column[j] * narrow[j]) / 2);
  // Ends lie in the order of the words at their other ends, so that ribbons of a word do not cross.
  const rank = (places) => (places.length > 1 && places[0][0] > places[1][0] ? (k) => places.length - k : (k) => k);
  const column_rank = rank(columns), row_rank = rank(rows);
  for (const n of in_order(out, (l) => l.h * 4096 + column_rank(l.j))) {
    const l = out[n];
    (l.t0 = row_at[l.i]), (l.t1 = row_at[l.i] += l.w * thick);
  }
  for (const n of in_order(out, (l) => l.h * 4096 + row_rank(l.i))) {
    const l = out[n];
    (l.s0 = column_at[l.j]), (l.s1 = column_at[l.j] += l.w * thick * narrow[l.j]);
  }
  return out;
}

// How a link looks: what is looked at in its own colour, what is not written yet pale.
function colored(l, { heads, look, dim }) {
  const some = look.row >= 0 || look.column >= 0;
  l.lit = some && (look.row < 0 || l.i === look.row) && (look.column < 0 || l.j === look.column);
  const share = shade(l.w);
  l.alpha = l.i > dim ? 0.05 : some && !l.lit ? 0.05 + 0.13 * share : 0.2 + 0.65 * share;
  l.fill = heads > 1 ? head_color(l.h) : l.lit ? colors().lit : colors().ink;
  return l;
}

// As shapes of a scene, those that are looked at above the others, in few shades; moved by x and y.
function ribbon_scene(links, { down, length, x, y }) {
  const groups = new Map();
  for (const { lit, fill, alpha, s0, s1, t0, t1 } of links) {
    const step = Math.round(alpha * 12) / 12 || 0.05, key = `${lit} ${fill} ${step}`;
    if (!groups.has(key)) groups.set(key, { lit, ribbons: [], fill, alpha: step, down });
    const shape = down ? [s0, 0, s1, 0, t1, length, t0, length] : [0, s0, 0, s1, length, t1, length, t0];
    groups.get(key).ribbons.push(shape.map((v, i) => v + (i % 2 ? y : x)));
  }
  return [...groups.values()].sort((a, b) => a.lit - b.lit || a.alpha - b.alpha);
}

// Weights as far as `share` of the way between two matrices of the same words.
const between = (from, to, share) => to.map((head, h) => ({
  whole: head.whole,
  weights: head.weights.map((row, i) => row.map((w, j) => {
    const before = from?.[h]?.weights[i]?.[j] ?? 0;
    return before + ((w ?? 0) - before) * share;
  })),
}));
const eased = (motion, now) => (still() ? 1 : 1 - (1 - Math.min(1, (now - motion.begin) / move_time)) ** 3);

// Links of two states, and a function that puts them as far as `share` of the way between.
function moving(from, to, places) {
  const name = ({ i, j, h }) => (h * 4096 + i) * 4096 + j;
  const all = new Map([...drawn_links(from, most_in_motion), ...drawn_links(to, most_in_motion)].map((l) => [name(l), l]));
  const [a, b] = [from, to].map((heads) => placed_links([...all.values()], heads, places.rows, places.columns));
  const now = b.map((l) => ({ ...l }));
  return (share) => {
    const mixed = (x, y) => x + (y - x) * share;
    now.forEach((l, n) => {
      const x = a[n], y = b[n];
      l.w = mixed(x.w, y.w), l.s0 = mixed(x.s0, y.s0), l.s1 = mixed(x.s1, y.s1), l.t0 = mixed(x.t0, y.t0), l.t1 = mixed(x.t1, y.t1);
    });
    return now;
  };
}

// `matrices`: one, or one for each head.
export function draw_ribbons(figure, { width, matrices, key, look, dim, forced, names, on_row, waiting }) {
  const [source, frame, target] = figure.children, canvas = frame.firstChild;
  const { rows, columns } = matrices[0];
  const room = waiting ? [...rows, ...columns.slice(rows.length)] : rows;
  const { down, size } = fit([columns, room], width);
  figure.classList.toggle("down", down);
  figure.style.setProperty("--size", `${size}px`);
  draw_line(source, { labels: columns, axis: "column", name: names.columns });
  draw_line(target, { labels: rows, axis: "row", name: names.rows, grey: dim, forced, on_press: on_row });
  const motion = figure.motion, begin = performance.now();
  let goes_on = false; // from what is on screen
  const to = matrices[0].weights ? matrices : [];
  if (motion.key !== key) {
    // Between matrices of the same words weights move, from wherever they are; others grow from nothing.
    const words = (m) => `${m?.rows.join("\n")}\n\n${m?.columns.join("\n")}`;
    const same = motion.to?.length === to.length && words(motion.to[0]) === words(to[0]);
    motion.from = same ? (eased(motion, begin) < 1 ? between(motion.from, motion.to, eased(motion, begin)) : motion.to) : between(null, to, 0);
    Object.assign(motion, { key, to, begin });
    goes_on = same && !still();
  }
  const box = frame.getBoundingClientRect();
  const length = down ? box.width : box.height;
  const places = { rows: extents(target, frame, down), columns: extents(source, frame, down) };
  const style = { heads: to.length, look, dim };
  const at_rest = () => placed_links(drawn_links(to), to, places.rows, places.columns).map((l) => colored(l, style));
  figure.scene = () => whole_scene(figure, { links: at_rest(), down: !down, length, size });
  const put = (links, how) => raster(canvas, links, { width: box.width, height: box.height, down: !down, paper: colors().paper, ...how });
  let on_the_way = null;
  const step = (now) => {
    const share = eased(motion, now), moves = share < 1 && to.length > 0;
    if (!moves && on_the_way) return settle(at_rest(), 0);
    if (moves) on_the_way ??= moving(motion.from, to, places);
    put(moves ? on_the_way(share).map((l) => colored(l, style)) : at_rest(), { coarse: moves });
    motion.frame = moves ? requestAnimationFrame(step) : 0;
  };
  // What has moved is drawn finely part by part, so that no frame is late.
  const settle = (links, part) => {
    put(links, { part: [part / parts_at_rest, (part + 1) / parts_at_rest] });
    motion.frame = part + 1 < parts_at_rest ? requestAnimationFrame(() => settle(links, part + 1)) : 0;
  };
  cancelAnimationFrame(motion.frame);
  if (goes_on) motion.frame = requestAnimationFrame(step);
  else step(begin);
}

// With its words, to be taken along.
function whole_scene(figure, { links, down, length, size }) {
  const box = figure.getBoundingClientRect(), frame = figure.children[1].getBoundingClientRect();
  const words = [...figure.querySelectorAll(".token")].map((item) => {
    const b = item.getBoundingClientRect();
    return {
      text: item.dataset.label, size, fill: colors().text, anchor: "middle",
      x: (b.left + b.right) / 2 - box.left, y: (b.top + b.bottom) / 2 - box.top + size * 0.33,
    };
  });
  return {
    width: box.width, height: box.height, name: "Attention between two sentences",
    shapes: [{ rect: [0, 0, box.width, box.height], fill: colors().paper },
      ...ribbon_scene(links, { down, length, x: frame.left - box.left, y: frame.top - box.top }), ...words],
  };
}
