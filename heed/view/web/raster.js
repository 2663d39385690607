// Ribbons as pixels. A ribbon crosses every line of the picture in one short span, so that thousands
// can be blended here in less time than a browser without a GPU takes to fill hundreds of paths.

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

const channels = (color) => {
  const hex = color.match(/^#(..)(..)(..)$/);
  return hex ? hex.slice(1).map((c) => parseInt(c, 16)) : color.match(/\d+/g).map(Number);
};

// Groups of ribbon_scene(), blended over `paper`, into a canvas of this many CSS pixels. `down`: from
// the top edge to the bottom edge; else from left to right.
export function raster(canvas, groups, { width, height, down, paper }) {
  const density = Math.min(2, devicePixelRatio || 1);
  const w = Math.max(1, Math.round(width * density)), h = Math.max(1, Math.round(height * density));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w, canvas.height = h;
    canvas.style.width = `${width}px`, canvas.style.height = `${height}px`;
    canvas.picture = null;
  }
  const context = canvas.getContext("2d");
  const picture = (canvas.picture ??= context.createImageData(w, h)), pixels = new Uint8Array(picture.data.buffer);
  const [r0, g0, b0] = channels(paper);
  new Uint32Array(pixels.buffer).fill(0xff000000 | (b0 << 16) | (g0 << 8) | r0);
  const lines = down ? h : w, across = down ? w : h; // how many lines, how long each is
  const along_step = (down ? w : 1) * 4, across_step = (down ? 1 : w) * 4;
  const curve = progress(lines);
  for (const { ribbons, fill, alpha } of groups) {
    const [r, g, b] = channels(fill);
    for (const shape of ribbons) {
      // The two ends: a to b at the first line, d to c at the last.
      const axis = down ? 0 : 1;
      const a0 = shape[axis] * density, d0 = shape[axis + 6] * density;
      const wide0 = shape[axis + 2] * density - a0, wide1 = shape[axis + 4] * density - d0;
      let left = a0;
      for (let line = 0; line < lines; ++line) {
        const next = a0 + (d0 - a0) * curve[line + 1];
        const wide = wide0 + (wide1 - wide0) * curve[line];
        // From this line to the next it moves sideways: the span holds all of it, thinner.
        const from = Math.min(left, next), to = Math.max(left, next) + wide;
        const strength = (256 * alpha * wide) / (to - from || 1);
        left = next;
        const first = Math.max(0, Math.floor(from)), last = Math.min(across - 1, Math.ceil(to) - 1);
        for (let x = first; x <= last; ++x) {
          const covered = (x + 1 < to ? x + 1 : to) - (x > from ? x : from);
          const share = (strength * covered + 0.5) | 0; // of 256
          if (share === 0) continue;
          const at = line * along_step + x * across_step, pr = pixels[at], pg = pixels[at + 1], pb = pixels[at + 2];
          pixels[at] = pr + (((r - pr) * share) >> 8);
          pixels[at + 1] = pg + (((g - pg) * share) >> 8);
          pixels[at + 2] = pb + (((b - pb) * share) >> 8);
        }
      }
    }
  }
  context.putImageData(picture, 0, 0);
}
