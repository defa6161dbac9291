// Images as a request has them: the file's own bytes where the server reads them and they are few, so that what the
// model is shown is what the file has; else what the browser makes of it, which knows more kinds of files.

const KINDS = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'];
const MOST_BYTES = 3 << 20; // of a file that goes as it is
const MOST_EDGE = 2048; // of one that is drawn anew: the model is shown a million pixels at most

export async function readImage(file: File): Promise<string> {
  if (KINDS.includes(file.type) && file.size <= MOST_BYTES) return readUrl(file);
  let bitmap: ImageBitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error('this browser cannot read the image');
  }
  const scale = Math.min(1, MOST_EDGE / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.getContext('2d')!.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas.toDataURL('image/jpeg', 0.92);
}

function readUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(new Error('the file cannot be read'));
    reader.readAsDataURL(file);
  });
}
