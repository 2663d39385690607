// Ribbons as pixels. A ribbon crosses every line of the picture in one short span, and where spans
// lie over each other what they absorb adds up: so a line takes a few sums for each ribbon and one
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

// A number holds two sums, of which neither leaves its half; so those of red, green, blue and of depth
// are two numbers a pixel. Depths are counted in small whole units.
const half = 2 ** 26, unit = 1024;
const spans_in_time = 120000; // of a frame
const together = 8; // lines that are put at once: where they stand upright, a row of pixels is written in one go

// What lines of a picture share, kept from frame to frame.
let sums = new Float64Array(0), spans = new Float64Array(0), colored = new Uint32Array(0);
const at_least = (kept, size) => (kept.length < size ? new kept.constructor(size) : kept);

// The spans of a line, as differences along it. `spans` has seven numbers of each ribbon: where it
// begins and how far it goes, how wide it is and becomes wider, its depth, and its colour with depth as
// the sums have them; `here` and `there` are how far it has gone at this line and at the next, `each`
// pixels on; `across`: how long a line is.
function add_spans(sums, spans, count, { here, there, each, across }) {
  for (let o = 0; o < count * 7; o += 7) {
    const far = spans[o + 1], move = far * (there - here), slope = move / each, thick = spans[o + 2] + spans[o + 3] * here;
    // A line that it crosses aslant has more of it: see scene.js.
    const wide = thick * Math.sqrt(Math.sqrt(1 + slope * slope)), a = spans[o] + far * here - (wide - thick) / 2, b = a + move;
    // From this line to the next it moves sideways: the span holds all of it, thinner.
    const from = Math.max(0, a < b ? a : b), to = Math.min(across, (a < b ? b : a) + wide), span = to - from;
    if (span <= 0) continue;
    const depth = (spans[o + 4] * Math.min(1, wide / span) + 0.5) | 0, with_red = spans[o + 5], green_blue = spans[o + 6];
    const first = from | 0, last = to | 0;
    // A span that begins within a pixel has a part of it, and all of the next.
    let at = first * 2, part = (depth * (1 - (from - first))) | 0, rest = depth - part;
    sums[at] += part * with_red, sums[at + 1] += part * green_blue, sums[at + 2] += rest * with_red, sums[at + 3] += rest * green_blue;
    at = last * 2, part = (depth * (1 - (to - last))) | 0, rest = depth - part;
    sums[at] -= part * with_red, sums[at + 1] -= part * green_blue, sums[at + 2] -= rest * with_red, sums[at + 3] -= rest * green_blue;
  }
}

// What a depth lets through is e to its negative: depths of ribbons above each other add up. Looked
// up, divided by the depth.
const coarser = 4, deepest = 12 * unit;
const share_of = Float64Array.from({ length: deepest / coarser + 1 }, (_, i) => {
  const depth = ((i + 0.5) * coarser) / unit;
  return (1 - Math.exp(-depth)) / depth / unit;
});

// The sums of a line as colours, from number `begin` on; and they are empty again.
function add_up(sums, colors, begin, count, [r0, g0, b0]) {
  const empty = 0xff000000 | (b0 << 16) | (g0 << 8) | r0;
  let depth_red = 0, green_blue = 0;
  for (let x = 0, at = 0; x < count; ++x, at += 2) {
    depth_red += sums[at], green_blue += sums[at + 1];
    sums[at] = sums[at + 1] = 0;
    if (depth_red < 2) {
      colors[begin + x] = empty;
      continue;
    }
    const r = Math.floor(depth_red / half), depth = depth_red - r * half;
    const b = Math.floor(green_blue / half), g = green_blue - b * half;
    const share = share_of[(depth < deepest ? depth / coarser : deepest / coarser) | 0], left = 1 - share * depth; // of the paper
    colors[begin + x] = 0xff000000 | ((b0 * left + b * share) << 16) | ((g0 * left + g * share) << 8) | (r0 * left + r * share);
  }
  sums.fill(0, count * 2, count * 2 + 4);
}

// Colours of lines as pixels, each line so many times.
function put_level(pixels, colored, { from, to, each, across, wide }) {
  for (let y = from; y < to; ++y) {
    const k = Math.floor((y - from) / each) * across;
    pixels.set(colored.subarray(k, k + across), y * wide);
  }
}
function put_upright(pixels, colored, { from, to, each, across, wide }) {
  for (let x = 0; x < across; ++x) {
    const end = x * wide + to;
    for (let at = x * wide + from, k = x; at < end; k += across) {
      const color = colored[k];
      for (const last = Math.min(end, at + each); at < last; ++at) pixels[at] = color;
    }
  }
}

// Ribbons as ribbons.js has them: `at` with five numbers of each, its weight, its ends at the source and
// at the target in CSS pixels; `alpha`; `fill`, a number of `fills`. `down`: from the top edge to the
// bottom edge; else from left to right. `coarse`: what moves has lines three by three, more of them
// together where a frame would be late. `part`: only [from, to] of the lines, 0 to 1; the others stay.
export function raster(canvas, { at, alpha, fill }, { width, height, down, paper, fills, coarse, part = [0, 1] }) {
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
  sums = at_least(sums, (across + 2) * 2), colored = at_least(colored, across * together), spans = at_least(spans, alpha.length * 7);
  const clip = (x) => Math.min(across, Math.max(0, x * density)), rgb = fills.map(channels);
  for (let n = 0, o = 0, k = 0; n < alpha.length; ++n, o += 7, k += 5) {
    const a = clip(at[k + 1]), d = clip(at[k + 3]), wide = clip(at[k + 2]) - a, [red, green, blue] = rgb[fill[n]];
    spans[o] = a, spans[o + 1] = d - a, spans[o + 2] = wide, spans[o + 3] = clip(at[k + 4]) - d - wide;
    spans[o + 4] = -Math.log(1 - Math.min(0.99, alpha[n])) * unit, spans[o + 5] = 1 + red * half, spans[o + 6] = green + blue * half;
  }
  const each = coarse ? Math.max(Math.round(3 * density), Math.ceil((lines * alpha.length) / spans_in_time)) : 1, ground = channels(paper);
  const [begin, end] = part.map((share) => Math.round(share * lines));
  for (let y = begin; y < end; y += each * together) {
    const last = Math.min(end, y + each * together);
    for (let at_line = y, k = 0; at_line < last; at_line += each, k += across) {
      add_spans(sums, spans, alpha.length, { here: curve[at_line], there: curve[Math.min(lines, at_line + each)], each, across });
      add_up(sums, colored, k, across, ground);
    }
    (down ? put_level : put_upright)(pixels, colored, { from: y, to: last, each, across, wide: w });
  }
  context.putImageData(picture, 0, 0, down ? 0 : begin, down ? begin : 0, down ? w : end - begin, down ? end - begin : h);
}
