// Sizes for people: the package's messages and the pages.
const UNITS = ['B', 'KB', 'MB', 'GB', 'TB'];
// "9.5 MB": decimal units, as files are advertised.
export function formatBytes(bytes: number): string {
  if (!Number.isFinite(bytes) || bytes < 0) return '?';
  let unit = 0;
  while (bytes >= 999.5 && unit < UNITS.length - 1) {
    bytes /= 1000;
    unit++;
  }
  return `${unit === 0 || bytes >= 99.95 ? Math.round(bytes) : bytes.toFixed(1)} ${UNITS[unit]}`;
}
