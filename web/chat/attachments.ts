// Texts and images that go with the next message: chosen, dropped or pasted, shown as chips above the field.
import type { AttachedFile } from './history.ts';
import { h, icon, toast } from '../shared/dom.ts';
import { formatBytes } from '../shared/format.ts';
import { readImage } from './image_files.ts';

const MOST_BYTES = 2 << 20;

export class Attachments {
  /** Whether the model sees. */
  sees = false;
  private files: AttachedFile[] = [];
  private readonly input = h('input', {
    type: 'file',
    multiple: true,
    class: 'visually-hidden',
    tabindex: -1,
    'aria-hidden': 'true',
    onchange: () => {
      void this.add([...this.input.files!]);
      this.input.value = '';
    },
  });

  constructor(
    private readonly list: HTMLElement,
    private readonly changed: () => void,
  ) {
    list.after(this.input);
    list.hidden = true;
  }

  choose(): void {
    this.input.click();
  }

  async add(files: File[]): Promise<void> {
    for (const file of files) {
      try {
        const isImage = file.type.startsWith('image/');
        if (isImage && !this.sees) throw new Error('this model reads texts alone');
        this.files.push(
          isImage
            ? { name: file.name, text: '', image: await readImage(file) }
            : { name: file.name, text: await readText(file) },
        );
      } catch (error) {
        toast(`${file.name}: ${(error as Error).message}`);
      }
    }
    this.draw();
  }

  get hasImages(): boolean {
    return this.files.some(({ image }) => image);
  }

  take(): AttachedFile[] {
    const { files } = this;
    this.files = [];
    this.draw();
    return files;
  }

  private draw(): void {
    this.list.hidden = this.files.length === 0;
    this.list.replaceChildren(
      ...this.files.map((file) =>
        h(
          'li',
          { class: 'chip' },
          ...(file.image
            ? [h('img', { class: 'image', src: file.image, alt: file.name })]
            : [icon('file'), h('span', null, `${file.name} · ${formatBytes(file.text.length)}`)]),
          h(
            'button',
            {
              type: 'button',
              'aria-label': `Remove ${file.name}`,
              onclick: () => {
                this.files = this.files.filter((one) => one !== file);
                this.draw();
              },
            },
            '×',
          ),
        ),
      ),
    );
    this.changed();
  }
}

async function readText(file: File): Promise<string> {
  if (file.size > MOST_BYTES) throw new Error(`more than ${formatBytes(MOST_BYTES)}`);
  const bytes = await file.arrayBuffer();
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new Error('this is not text in UTF-8');
  }
  if (text.includes('\0')) throw new Error('this is not text');
  return text.replace(/\r\n?/g, '\n');
}
