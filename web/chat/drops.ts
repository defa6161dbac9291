// Files that are dropped anywhere on the page; of a folder, those in it.
import { toast } from '../shared/dom.ts';

/** What a page takes: `single`, of files that are dropped by themselves; `none` is said if there is none. */
export interface Wanted {
  single(file: File): boolean;
  none: string;
}

export function listenForDrops(
  sign: HTMLElement,
  wanted: Wanted,
  onFiles: (files: File[]) => void,
): void {
  const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false;
  let depth = 0; // of elements that the pointer has entered and not left
  const show = (entered: number) => {
    depth = Math.max(0, entered);
    sign.hidden = depth === 0;
  };
  addEventListener('dragenter', (event) => hasFiles(event) && show(depth + 1));
  addEventListener('dragleave', (event) => hasFiles(event) && show(depth - 1));
  addEventListener('dragover', (event) => hasFiles(event) && event.preventDefault());
  addEventListener('drop', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    show(0);
    filesOf(event.dataTransfer!, wanted).then(
      (files) => (files.length ? onFiles(files) : toast(wanted.none)),
      (error: unknown) => toast(`What was dropped cannot be read: ${(error as Error).message}`),
    );
  });
}

// Of a dropped folder all files, else those that are wanted.
async function filesOf(data: DataTransfer, wanted: Wanted): Promise<File[]> {
  const entries = [...data.items].map((item) => item.webkitGetAsEntry?.());
  const folder = entries.find((entry) => entry?.isDirectory) as FileSystemDirectoryEntry | undefined;
  if (!folder) return [...data.files].filter((file) => wanted.single(file));
  const reader = folder.createReader();
  const files: File[] = [];
  for (;;) {
    // A reader gives some at a time, and none at the end.
    const batch = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject),
    );
    if (batch.length === 0) return files;
    for (const entry of batch.filter((one) => one.isFile)) {
      files.push(
        await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject)),
      );
    }
  }
}
