// Files that are dropped anywhere on the page: a model's file, or the folder of one.
import { toast } from '../shared/dom.ts';

export function listenForDrops(sign: HTMLElement, onFiles: (files: File[]) => void): void {
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
    filesOf(event.dataTransfer!).then(
      (files) => (files.length ? onFiles(files) : toast('There is no .gguf file in what was dropped.')),
      (error: unknown) => toast(`What was dropped cannot be read: ${(error as Error).message}`),
    );
  });
}

// Of a dropped folder all files, else those that are models.
async function filesOf(data: DataTransfer): Promise<File[]> {
  const entries = [...data.items].map((item) => item.webkitGetAsEntry?.());
  const folder = entries.find((entry) => entry?.isDirectory) as FileSystemDirectoryEntry | undefined;
  if (!folder) return [...data.files].filter((file) => /\.gguf$/i.test(file.name));
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
