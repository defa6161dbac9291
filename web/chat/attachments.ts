// Texts and pictures that go with the next message: chosen, dropped or pasted, shown as chips above the field.
import type { AttachedFile } from './history.ts';
import { h, icon, toast } from '../shared/dom.ts';
import { formatBytes } from '../shared/format.ts';
import { readPicture } from './picture_files.ts';

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
        const isPicture = file.type.startsWith('image/');
        if (isPicture && !this.sees) throw new Error('this model reads texts alone');
        this.files.push(
          isPicture
            ? { name: file.name, text: '', picture: await readPicture(file) }
            : { name: file.name, text: await readText(file) },
        );
      } catch (error) {
        toast(`${file.name}: ${(error as Error).message}`);
      }
    }
    this.draw();
  }

  get hasPictures(): boolean {
    return this.files.some(({ picture }) => picture);
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
          ...(file.picture
            ? [h('img', { class: 'picture', src: file.picture, alt: file.name })]
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
    throw new Error('this is no text in UTF-8');
  }
  if (text.includes('\0')) throw new Error('this is no text');
  return text.replace(/\r\n?/g, '\n');
}
