// Draws the pages' icon: a tern in flight, as SVG and as PNG (which phones want for an installed page).
// One drawing, curves in a square of 100 by 100; the PNG is filled here, by counting crossings of four
// sub-rows a row, and packed with Node's zlib.
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { deflateSync } from 'node:zlib';

const SEA = '#0f6674';
const DEEP = '#0a3f51';
const WHITE = '#ffffff';
const CAP = '#12242c';
const BILL = '#f2643d';

// Paths in absolute M, L, C and Z: far wing, body with forked tail, near wing, cap, bill.
const BIRD = [
  { fill: '#b9d8dd', d: 'M50 49 C44 38 42 25 45 10 C53 20 60 32 62 46 Z' },
  {
    fill: WHITE,
    d: 'M84 41 C78 36 70 36 62 40 C50 46 38 55 27 64 L8 79 L25 72 L16 88 L36 71 C50 66 66 60 76 51 C80 47 83 45 84 41 Z',
  },
  { fill: WHITE, d: 'M66 45 C60 38 50 33 39 33 C27 33 15 37 5 45 C19 43 30 46 40 54 C46 59 55 60 62 56 Z' },
  { fill: CAP, d: 'M84 41 C80 36 74 35 68 38 C72 41 78 43 84 41 Z' },
  { fill: BILL, d: 'M83.4 39.6 L96 43.6 L82.6 43.4 Z' },
];

export function svgText({ rounded }) {
  const shapes = BIRD.map(({ fill, d }) => `<path fill="${fill}" d="${d}"/>`).join('');
  const radius = rounded ? ' rx="22"' : '';
  return (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100"><defs>' +
    `<linearGradient id="s" x1="0" y1="0" x2="0" y2="1"><stop stop-color="${SEA}"/><stop offset="1" stop-color="${DEEP}"/></linearGradient></defs>` +
    `<rect width="100" height="100"${radius} fill="url(#s)"/><g transform="translate(9 9) scale(.82)">${shapes}</g></svg>\n`
  );
}

// A path's straight pieces: [x0, y0, x1, y1], curves in sixteen.
function flatten(d, place) {
  const words = d.match(/[MLCZ]|-?[\d.]+/g);
  const lines = [];
  let at = [0, 0],
    start = [0, 0],
    i = 0;
  const point = () => place([Number(words[i++]), Number(words[i++])]);
  const lineTo = (to) => {
    lines.push([...at, ...to]);
    at = to;
  };
  while (i < words.length) {
    const command = words[i++];
    if (command === 'M') at = start = point();
    else if (command === 'L') lineTo(point());
    else if (command === 'Z') lineTo(start);
    else {
      const [a, b, c, e] = [at, point(), point(), point()];
      for (let k = 1; k <= 16; k++) {
        const t = k / 16,
          u = 1 - t;
        const mix = (j) => u * u * u * a[j] + 3 * u * u * t * b[j] + 3 * u * t * t * c[j] + t * t * t * e[j];
        lineTo([mix(0), mix(1)]);
      }
    }
  }
  return lines;
}

// How much of each pixel the shape covers, 0..1.
function coverage(lines, size) {
  const covered = new Float32Array(size * size);
  const SUB = 4;
  for (let row = 0; row < size * SUB; row++) {
    const y = (row + 0.5) / SUB;
    const xs = lines
      .filter(([, y0, , y1]) => y0 <= y !== y1 <= y)
      .map(([x0, y0, x1, y1]) => x0 + ((y - y0) / (y1 - y0)) * (x1 - x0))
      .sort((a, b) => a - b);
    for (let i = 0; i + 1 < xs.length; i += 2) {
      const [from, to] = [Math.max(0, xs[i]), Math.min(size, xs[i + 1])];
      for (let x = Math.floor(from); x < to; x++) {
        const part = Math.min(to, x + 1) - Math.max(from, x);
        if (part > 0) covered[Math.floor(y) * size + x] += part / SUB;
      }
    }
  }
  return covered;
}

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

// maskable: the system cuts its own shape out of it, so it is filled to the corners and the bird is smaller.
function drawPixels(size, maskable) {
  const pixels = new Uint8ClampedArray(size * size * 4);
  const paint = (covered, colour) => {
    for (let i = 0; i < size * size; i++) {
      const a = Math.min(1, covered[i]);
      if (a <= 0) continue;
      const [r, g, b] = colour(Math.floor(i / size) / size);
      const below = pixels[4 * i + 3] / 255;
      const both = a + below * (1 - a);
      [r, g, b].forEach((value, c) => {
        pixels[4 * i + c] = (value * a + pixels[4 * i + c] * below * (1 - a)) / both;
      });
      pixels[4 * i + 3] = 255 * both;
    }
  };
  const scale = size / 100;
  const k = 22 * 0.4477; // a quarter circle as a curve
  const box = maskable
    ? 'M0 0 L100 0 L100 100 L0 100 Z'
    : `M22 0 L78 0 C${100 - k} 0 100 ${k} 100 22 L100 78 C100 ${100 - k} ${100 - k} 100 78 100 L22 100 C${k} 100 0 ${100 - k} 0 78 L0 22 C0 ${k} ${k} 0 22 0 Z`;
  const [top, bottom] = [rgb(SEA), rgb(DEEP)];
  paint(
    coverage(
      flatten(box, ([x, y]) => [x * scale, y * scale]),
      size,
    ),
    (y) => top.map((value, c) => value + (bottom[c] - value) * y),
  );
  const inner = maskable ? 0.66 : 0.82;
  const place = ([x, y]) => [(50 + (x - 50) * inner) * scale, (50 + (y - 50) * inner) * scale];
  for (const { fill, d } of BIRD) paint(coverage(flatten(d, place), size), () => rgb(fill));
  return pixels;
}

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

function pngChunk(type, data) {
  const chunk = Buffer.alloc(12 + data.length);
  chunk.writeUInt32BE(data.length, 0);
  chunk.write(type, 4, 'latin1');
  data.copy(chunk, 8);
  let crc = 0xffffffff;
  for (const byte of chunk.subarray(4, 8 + data.length)) crc = CRC[(crc ^ byte) & 255] ^ (crc >>> 8);
  chunk.writeUInt32BE((crc ^ 0xffffffff) >>> 0, 8 + data.length);
  return chunk;
}

function encodePng(pixels, size) {
  const rows = Buffer.alloc(size * (size * 4 + 1)); // each row begins with its filter, 0: none
  for (let y = 0; y < size; y++)
    rows.set(pixels.subarray(y * size * 4, (y + 1) * size * 4), y * (size * 4 + 1) + 1);
  const header = Buffer.alloc(13);
  header.writeUInt32BE(size, 0);
  header.writeUInt32BE(size, 4);
  header.set([8, 6, 0, 0, 0], 8); // 8 bits, RGBA
  return Buffer.concat([
    Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'),
    pngChunk('IHDR', header),
    pngChunk('IDAT', deflateSync(rows, { level: 9 })),
    pngChunk('IEND', Buffer.alloc(0)),
  ]);
}

export async function drawIcons(folder) {
  await mkdir(folder, { recursive: true });
  const write = (name, data) => writeFile(path.join(folder, name), data);
  await write('icon.svg', svgText({ rounded: true }));
  for (const [name, size, maskable] of [
    ['icon-192.png', 192, false],
    ['icon-512.png', 512, false],
    ['maskable-512.png', 512, true],
    ['apple-180.png', 180, true],
  ])
    await write(name, encodePng(drawPixels(size, maskable), size));
}
