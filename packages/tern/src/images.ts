// The user's images as pixels: decoded by the browser, at their own size and without colour conversion, as the
// engine's decoders would (docs/images.md).
import type { ImageSource } from './api.js';
import type { Pixels } from './engine/types.js';
import { TernError } from './errors.js';

const PIXELS_MAX = 89_478_485;

// What is sent to the worker: URLs become absolute, since a worker resolves relative ones differently.
export function portableImage(image: ImageSource): Exclude<ImageSource, URL> {
  if (image instanceof URL) return image.href;
  if (typeof image !== 'string' || /^(data|blob):/i.test(image)) return image;
  const base = (globalThis as { document?: Document; location?: Location }).document?.baseURI
    ?? (globalThis as { location?: Location }).location?.href;
  if (!URL.canParse(image, base)) throw new TernError('argument', `"${image.slice(0, 80)}" is not an image's address`);
  return new URL(image, base).href;
}

export async function decodeImage(image: ImageSource, signal?: AbortSignal): Promise<Pixels> {
  if (image instanceof URL || typeof image === 'string') image = await fetchImage(String(image), signal);
  if (typeof image === 'object' && 'data' in image) return image;
  if (typeof createImageBitmap !== 'function' || typeof OffscreenCanvas !== 'function')
    throw new TernError('unsupported', 'nothing decodes images here: give { width, height, data }, three or four bytes a pixel');
  if (!(image instanceof Blob)) return readBitmap(image);
  let bitmap: ImageBitmap;
  try {
    bitmap = await createImageBitmap(image,
      { colorSpaceConversion: 'none', premultiplyAlpha: 'none', imageOrientation: 'from-image' });
  } catch (cause) {
    throw new TernError('format', `an image cannot be decoded: ${(cause as Error).message}`, { cause });
  }
  try {
    return readBitmap(bitmap);
  } finally {
    bitmap.close();
  }
}

// Most pages' policies forbid fetching data: URLs, so they are decoded here.
async function fetchImage(url: string, signal?: AbortSignal): Promise<Blob> {
  if (/^data:/i.test(url)) return readData(url);
  if (!/^(https?|blob):/i.test(url))
    throw new TernError('argument', 'an image is given as an address (https:, data:, blob:), a Blob, an ImageBitmap, or pixels');
  let response: Response;
  try {
    response = await fetch(url, signal ? { signal } : {});
  } catch (cause) {
    if (signal?.aborted) throw new TernError('aborted', 'aborted by the caller', { cause });
    throw new TernError('network', `the image ${url} cannot be fetched: its server is away, or refuses other sites`, { cause });
  }
  if (!response.ok) throw new TernError('network', `the image ${url}: ${response.status} ${response.statusText}`);
  return response.blob();
}

function readData(url: string): Blob {
  const comma = url.indexOf(','), head = url.slice(5, comma);
  try {
    if (comma < 0) throw new Error('it has no comma');
    const text = decodeURIComponent(url.slice(comma + 1));
    const bytes = /;base64$/i.test(head) ? atob(text) : text;
    return new Blob([Uint8Array.from(bytes, c => c.charCodeAt(0))], { type: head.replace(/;.*/, '') });
  } catch (cause) {
    throw new TernError('argument', `a data: address of an image cannot be read: ${(cause as Error).message}`, { cause });
  }
}

// A canvas multiplies colours by their alpha, so images with alpha are read from a texture.
function readBitmap(bitmap: ImageBitmap): Pixels {
  const { width, height } = bitmap;
  if (width * height > PIXELS_MAX)
    throw new TernError('format', `an image of ${width} x ${height} pixels is larger than ${PIXELS_MAX.toLocaleString('en')}`);
  const canvas = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
  if (!canvas) throw new TernError('memory', `there is no canvas of ${width} x ${height} pixels`);
  canvas.drawImage(bitmap, 0, 0);
  const { data } = canvas.getImageData(0, 0, width, height);
  for (let i = 3; i < data.length; i += 4)
    if (data[i] !== 255) return { width, height, data: readTexture(bitmap) ?? data };
  return { width, height, data };
}

// undefined: there is no WebGL, or the image is too large for it.
function readTexture(bitmap: ImageBitmap): Uint8Array | undefined {
  const { width, height } = bitmap;
  const gl = new OffscreenCanvas(1, 1).getContext('webgl2');
  if (!gl || Math.max(width, height) > (gl.getParameter(gl.MAX_TEXTURE_SIZE) as number)) return undefined;
  const texture = gl.createTexture(), data = new Uint8Array(4 * width * height);
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, bitmap);
  gl.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
  gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, data);
  const failed = gl.getError() !== gl.NO_ERROR;
  gl.getExtension('WEBGL_lose_context')?.loseContext();
  return failed ? undefined : data;
}
