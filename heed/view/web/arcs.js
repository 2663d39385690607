// Self-attention: one line of words, with arcs from each to those that it reads, as thick as the
// weights. What looks back goes above the line (beside it, to the right), what looks ahead below.

import { colors, head_color, shade } from "./palette.js";
import { element, put_style } from "./dom.js";
import { draw_line, extents, fit, word_shapes } from "./lines.js";
import { paint, prepare } from "./scene.js";
import { bound_of } from "./ribbons.js";

const weakest = 0.02, most_of_row = 8;

export const make_arcs = () =>
  element("div", { className: "arcs" }, [
    element("div", { className: "over" }, [element("canvas", { aria: { hidden: "true" } })]),
    element("div", { className: "line", role: "group" }),
  ]);

// Which weights are drawn: { h, i, j, w } of head, row and column. A row's word stands where its column
// does: row i of a source that reads itself is word i; of a target's past it is the last that was read.
const arcs_of = (heads, count) => heads.flatMap(({ weights, whole }, h) => weights.flatMap((row, i) => {
  const shares = row.map((w) => Math.min(1, (w ?? 0) / whole[i])), bound = Math.max(weakest, bound_of(shares.filter((w) => w > weakest), most_of_row));
  return shares.flatMap((w, j) => (w > bound && i < count && j < count ? [{ h, i, j, w }] : []));
}));

// The longest has all of the room.
export function arc_shapes(heads, places, { middle, reach, down, past, look, dim }) {
  const out = [], arcs = arcs_of(heads, places.length), center = places.map(([a, b]) => (a + b) / 2), some = look.row >= 0 || look.column >= 0;
  const longest = arcs.reduce((most, { i, j }) => Math.max(most, Math.abs(center[i] - center[j])), 1);
  for (const { h, i, j, w } of arcs) {
    const from = center[i], to = center[j], lit = some && (look.row < 0 || look.row === i) && (look.column < 0 || look.column === j);
    const side = j > i && !past ? 1 : -1; // pieces of one word may read each other
    const high = reach * (0.14 + 0.86 * Math.sqrt(Math.abs(to - from) / longest));
    const edge = middle.edge * side + middle.at;
    const far = edge + (side * high) / 0.75; // the curve goes three quarters of the way to its control points
    const point = (along, across) => (down ? `${(2 * middle.at - across).toFixed(1)} ${along.toFixed(1)}` : `${along.toFixed(1)} ${across.toFixed(1)}`);
    const loop = Math.min(9, (places[i][1] - places[i][0]) / 2);
    const path = i === j
      ? `M${point(from - loop, edge)}C${point(from - loop, edge - 2.6 * loop)} ${point(from + loop, edge - 2.6 * loop)} ${point(from + loop, edge)}`
      : `M${point(from, edge)}C${point(from, far)} ${point(to, far)} ${point(to, edge)}`;
    const strong = shade(w);
    out.push({
      path, lit, stroke: heads.length > 1 ? head_color(h) : lit ? colors().lit : colors().ink, width: 0.5 + 7 * w,
      alpha: i > dim ? 0.04 : some && !lit ? 0.06 + 0.1 * strong : 0.15 + 0.7 * strong,
    });
  }
  return out.sort((a, b) => a.lit - b.lit || a.alpha - b.alpha);
}

// `past`: nothing looks ahead, so the words stand at the foot or, down, at the left.
export function draw_arcs(figure, { width, matrices, look, dim, names, past }) {
  const [over, line] = figure.children, canvas = over.firstChild;
  const { columns } = matrices[0];
  const { down, size } = fit([columns], width);
  figure.classList.toggle("down", down);
  figure.classList.toggle("past", past);
  put_style(figure, "--size", `${size}px`);
  draw_line(line, { labels: columns, axis: "row", name: names.columns });
  const box = over.getBoundingClientRect(), words = line.getBoundingClientRect();
  const places = extents(line, over, down);
  const middle = down
    ? { at: (words.left + words.right) / 2 - box.left, edge: words.width / 2 }
    : { at: (words.top + words.bottom) / 2 - box.top, edge: words.height / 2 - 2 };
  const room = down ? box.width - words.width - 12 : box.height - words.height - 8, reach = past ? room : room / 2;
  const heads = matrices[0].weights ? matrices : [];
  const shapes = arc_shapes(heads, places, { middle, reach, down, past, look, dim });
  paint(prepare(canvas, box.width, box.height), shapes);
  const { width: wide, height: high } = box;
  figure.scene = () => {
    const words = word_shapes([line], over, size);
    return { width: wide, height: high, name: "Self-attention", shapes: [{ rect: [0, 0, wide, high], fill: colors().paper }, ...shapes, ...words] };
  };
}
