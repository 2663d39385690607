// Ribbons as pixels. A ribbon crosses every line of the picture in one short span, and where spans
// lie over each other what they absorb adds up: so a line takes four sums for each ribbon and one
// pass over its pixels, however many ribbons there are, where a browser without a GPU would fill
// hundreds of paths.

// How far a ribbon has moved sideways at each line, 0 to 1: the curve of scene.js, whose control
// points stand straight above and below its ends.
function progress(length) {
  const out = new Float32Array(length + 1);
  let t = 0;
  for (let y = 0; y <= length; ++y) {
    const wanted = y / length;
    for (let i = 0; i < 8; ++i) {
      const at = 1.5 * t * (1 - t) + t ** 3, slope = 1.5 - 3 * t + 3 * t * t;
      t = Math.min(1, Math.max(0, t - (at - wanted) / Math.max(0.2, slope)));
    }
    out[y] = t * t * (3 - 2 * t);
  }
  return out;
}
let curve = progress(1);

const channels = (color) => {
  const hex = color.match(/^#(..)(..)(..)$/);
  return hex ? hex.slice(1).map((c) => parseInt(c, 16)) : color.match(/\d+/g).map(Number);
};

// What a depth lets through is e to its negative: depths of ribbons above each other add up. Looked
// up, divided by the depth.
const fine = 256, deepest = 12;
const share_of = Float32Array.from({ length: fine * deepest + 1 }, (_, i) => (1 - Math.exp(-(i || 1e-6) / fine)) / ((i || 1e-6) / fine));

// The spans of a line, as differences along it: depth, and depth times red, green and blue. `all` has
// eight numbers of each ribbon: where it begins and how far it goes, how wide it is and becomes wider,
// depth and colour; `here` and `there` are how far it has gone at this line and at the next.
function add_spans(all, here, there, sums) {
  for (let o = 0; o < all.length; o += 8) {
    const begin = all[o], far = all[o + 1], wide = all[o + 2] + all[o + 3] * here;
    // From this line to the next it moves sideways: the span holds all of it, thinner.
    const a = begin + far * here, b = begin + far * there;
    const from = a < b ? a : b, to = (a < b ? b : a) + wide, span = to - from;
    if (span <= 0) continue;
    const depth = (all[o + 4] * wide) / span, red = all[o + 5], green = all[o + 6], blue = all[o + 7];
    const first = from | 0, last = to | 0;
    let at = first * 4, d = depth * (1 - (from - first));
    sums[at] += d, sums[at + 1] += d * red, sums[at + 2] += d * green, sums[at + 3] += d * blue;
    d = depth - d;
    sums[at + 4] += d, sums[at + 5] += d * red, sums[at + 6] += d * green, sums[at + 7] += d * blue;
    at = last * 4, d = depth * (1 - (to - last));
    sums[at] -= d, sums[at + 1] -= d * red, sums[at + 2] -= d * green, sums[at + 3] -= d * blue;
    d = depth - d;
    sums[at + 4] -= d, sums[at + 5] -= d * red, sums[at + 6] -= d * green, sums[at + 7] -= d * blue;
  }
}

// The sums of a line as pixels, from number `to` on in steps, the same on so many lines; and the sums
// are empty again.
function put_line(sums, pixels, { to, step, count, alike, line_step, paper: [r0, g0, b0] }) {
  const empty = 0xff000000 | (b0 << 16) | (g0 << 8) | r0;
  let depth = 0, r = 0, g = 0, b = 0;
  for (let x = 0, at = 0; x < count; ++x, at += 4, to += step) {
    depth += sums[at], r += sums[at + 1], g += sums[at + 2], b += sums[at + 3];
    let color = empty;
    if (depth > 0.002) {
      const share = share_of[depth < deepest ? (depth * fine) | 0 : fine * deepest], left = 1 - share * depth; // of the paper
      color = 0xff000000 | ((b0 * left + b * share) << 16) | ((g0 * left + g * share) << 8) | (r0 * left + r * share);
    }
    for (let k = 0, also = to; k < alike; ++k, also += line_step) pixels[also] = color;
  }
  sums.fill(0);
}

// Each ribbon has its ends s0 to s1 and t0 to t1 in CSS pixels, an alpha and a fill. `down`: from the
// top edge to the bottom edge; else from left to right. `coarse`: what moves has lines three by three.
// `part`: only [from, to] of the lines, 0 to 1; the others stay as they are.
export function raster(canvas, ribbons, { width, height, down, paper, coarse, part = [0, 1] }) {
  const density = Math.min(2, devicePixelRatio || 1);
  const w = Math.max(1, Math.round(width * density)), h = Math.max(1, Math.round(height * density));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w, canvas.height = h;
    canvas.style.width = `${width}px`, canvas.style.height = `${height}px`;
    canvas.picture = null;
  }
  const context = canvas.getContext("2d");
  const picture = (canvas.picture ??= context.createImageData(w, h)), pixels = new Uint32Array(picture.data.buffer);
  const lines = down ? h : w, across = down ? w : h; // how many lines, how long each is
  if (curve.length !== lines + 1) curve = progress(lines);
  const all = new Float32Array(ribbons.length * 8), fills = new Map();
  ribbons.forEach(({ s0, s1, t0, t1, alpha, fill }, n) => {
    if (!fills.has(fill)) fills.set(fill, channels(fill));
    const clip = (x) => Math.min(across, Math.max(0, x * density)), a = clip(s0), d = clip(t0), wide = clip(s1) - a, rgb = fills.get(fill), o = n * 8;
    all[o] = a, all[o + 1] = d - a, all[o + 2] = wide, all[o + 3] = clip(t1) - d - wide;
    all[o + 4] = -Math.log(1 - Math.min(0.99, alpha)), all[o + 5] = rgb[0], all[o + 6] = rgb[1], all[o + 7] = rgb[2];
  });
  const sums = new Float32Array((across + 2) * 4), each = coarse ? Math.round(3 * density) : 1;
  const line_step = down ? w : 1, step = down ? 1 : w, ground = channels(paper);
  const [begin, end] = part.map((share) => Math.round(share * lines));
  for (let line = begin; line < end; line += each) {
    const alike = Math.min(each, lines - line);
    add_spans(all, curve[line], curve[line + alike], sums);
    put_line(sums, pixels, { to: line * line_step, step, count: across, alike, line_step, paper: ground });
  }
  context.putImageData(picture, 0, 0, down ? 0 : begin, down ? begin : 0, down ? w : end - begin, down ? end - begin : h);
}
