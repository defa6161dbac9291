// The picker of models: what is loaded, what is on this device, what could be downloaded, files.
import { Tern, type StorageEstimate, type StoredModel } from 'tern-engine';
import { h, iconButton, toast } from '../shared/dom.ts';
import { deviceWords, formatBytes } from '../shared/format.ts';
import { confirmDialog, openDialog } from './dialogs.ts';
import { type Choice, type Loader } from './loader.ts';
import { PRESETS, nameOfSource, sourceFromText } from './models.ts';

type Load = (choice: Choice) => void;

// Opens the system's dialog for files.
function pickFiles(folder: boolean): Promise<File[]> {
  return new Promise((resolve) => {
    const input = h('input', {
      type: 'file',
      multiple: true,
      webkitdirectory: folder,
      accept: folder ? undefined : '.gguf',
    });
    input.addEventListener('change', () => resolve([...(input.files ?? [])]));
    input.addEventListener('cancel', () => resolve([]));
    input.click();
  });
}

function facts(rows: [string, string][]): HTMLElement {
  return h(
    'dl',
    { class: 'facts' },
    ...rows.flatMap(([name, value]) => [h('dt', null, name), h('dd', null, value)]),
  );
}

function loadedGroup(loader: Loader, close: () => void): HTMLElement | null {
  if (loader.state.kind !== 'ready') return null;
  const { info } = loader.state.tern;
  const rows: [string, string][] = [
    ['Runs on', deviceWords(info.device)],
    [
      'Size',
      `${formatBytes(info.fileBytes)}, ${(info.nParams / 1e6).toFixed(info.nParams < 1e9 ? 1 : 0)} million weights, ${info.architecture}`,
    ],
    ['Context', `${info.context} tokens`],
    ['Opened in', `${info.loadSeconds.toFixed(2)} s`],
    [
      'Kept',
      {
        opfs: 'on this device',
        memory: 'until the page is closed',
        file: 'in your file',
        folder: 'on this device',
      }[info.storage],
    ],
  ];
  if (info.deviceReason) rows.push(['No WebGPU', info.deviceReason]);
  rows.push(['Engine', info.device]);
  for (const note of info.notes) rows.push(['Note', note]);
  return h(
    'section',
    { class: 'group' },
    h('h3', null, `Loaded: ${loader.state.name}`),
    facts(rows),
    h(
      'div',
      { class: 'row' },
      h(
        'button',
        {
          type: 'button',
          class: 'button small',
          onclick: () => {
            close();
            void loader.unload();
          },
        },
        'Unload',
      ),
    ),
  );
}

const nameOfStored = (model: StoredModel) =>
  nameOfSource(model.id) === model.id ? nameOfSource(model.url) : nameOfSource(model.id);

class StoredGroup {
  private readonly list = h('ul', { class: 'models' });
  private readonly quota = h('div', { class: 'quota tiny muted' });
  readonly element = h(
    'section',
    { class: 'group', 'aria-label': 'On this device' },
    h('h3', null, 'On this device'),
    this.list,
    this.quota,
  );

  private onNames: (names: Set<string>) => void = () => {};

  constructor(
    private readonly load: Load,
    private readonly loader: Loader,
  ) {}

  /** `onNames` is told what is listed here, now and after each change. */
  async draw(onNames = this.onNames): Promise<void> {
    this.onNames = onNames;
    try {
      const [models, estimate] = await Promise.all([Tern.models.list(), Tern.models.estimate()]);
      models.sort((a, b) => b.lastUsed.getTime() - a.lastUsed.getTime());
      this.list.replaceChildren(...models.map((model) => this.row(model)));
      onNames(new Set(models.map(nameOfStored)));
      if (estimate) this.drawQuota(estimate);
      this.element.hidden = models.length === 0;
    } catch (error) {
      this.list.replaceChildren();
      this.quota.textContent = `What is stored cannot be listed: ${(error as Error).message}`;
    }
  }

  private drawQuota({ usage, quota, persisted }: StorageEstimate): void {
    const fill = h('div', null);
    fill.style.transform = `scaleX(${quota > 0 ? Math.min(1, usage / quota) : 0})`;
    this.quota.replaceChildren(
      h('div', { class: 'bar', 'aria-hidden': 'true' }, fill),
      `${formatBytes(usage)} of the ${formatBytes(quota)} that the browser grants this site; ` +
        (persisted ? 'kept until you delete it.' : 'the browser may delete it when the disk is full.'),
    );
  }

  private row(model: StoredModel): HTMLElement {
    const name = nameOfStored(model);
    const share =
      model.size > 0
        ? ` of ${formatBytes(model.size)} (${Math.floor((100 * model.stored) / model.size)}%)`
        : '';
    const about = model.complete
      ? `${formatBytes(model.size)} · last used ${model.lastUsed.toLocaleDateString()}`
      : `not complete: ${formatBytes(model.stored)}${share}`;
    const loaded = this.loader.state.kind === 'ready' && this.loader.state.tern.info.id === model.id;
    return h(
      'li',
      { class: loaded ? 'current' : '' },
      h(
        'div',
        { class: 'grow' },
        h('div', { class: 'name' }, name),
        h('div', { class: 'about number' }, about),
      ),
      !loaded &&
        h(
          'button',
          {
            type: 'button',
            class: 'button small',
            'aria-label': `${model.complete ? 'Open' : 'Resume'} ${name}`,
            onclick: () => this.load({ source: model.id, name }),
          },
          model.complete ? 'Open' : 'Resume',
        ),
      iconButton(
        'trash',
        `Delete ${name} from this device`,
        () => void this.remove(model, name, loaded),
        'small',
      ),
    );
  }

  private async remove(model: StoredModel, name: string, loaded: boolean): Promise<void> {
    const sure = await confirmDialog(
      'Delete the model?',
      `${name}, ${formatBytes(model.stored)}. It can be downloaded again.`,
      'Delete',
    );
    if (!sure) return;
    try {
      if (loaded) await this.loader.unload();
      await Tern.models.delete(model.id);
    } catch (error) {
      toast((error as Error).message);
    }
    await this.draw();
  }
}

function presetGroup(load: Load): HTMLElement {
  return h(
    'section',
    { class: 'group' },
    h('h3', null, 'To download'),
    h(
      'ul',
      { class: 'models' },
      ...PRESETS.map((preset) =>
        h(
          'li',
          { 'data-name': preset.name },
          h(
            'div',
            { class: 'grow' },
            h('div', { class: 'name' }, preset.name),
            h('div', { class: 'about' }, preset.note),
            h('div', { class: 'about number' }, `${formatBytes(preset.size)} · ${preset.licence}`),
          ),
          h(
            'button',
            {
              type: 'button',
              class: 'button small',
              'aria-label': `Download ${preset.name}`,
              onclick: () => load({ source: preset.source, name: preset.name }),
            },
            'Download',
          ),
        ),
      ),
    ),
  );
}

function otherGroup(load: Load): HTMLElement {
  const input = h('input', {
    id: 'address',
    class: 'input grow',
    type: 'text',
    inputmode: 'url',
    autocapitalize: 'off',
    autocorrect: 'off',
    spellcheck: 'false',
    placeholder: 'https://…/model.gguf or owner/name',
    'aria-describedby': 'address-wrong',
  });
  const wrong = h('p', { id: 'address-wrong', class: 'tiny failure', role: 'alert' });
  const form = h(
    'form',
    {
      class: 'row',
      onsubmit: (event: Event) => {
        event.preventDefault();
        try {
          load({ source: sourceFromText(input.value) });
        } catch (error) {
          wrong.textContent = (error as Error).message;
          input.focus();
        }
      },
    },
    input,
    h('button', { type: 'submit', class: 'button' }, 'Download'),
  );
  const file = async (folder: boolean) => {
    const files = await pickFiles(folder);
    if (files.length) load({ files, name: folder ? files[0]!.webkitRelativePath.split('/')[0] : undefined });
  };
  return h(
    'section',
    { class: 'group' },
    h('h3', null, 'Any other'),
    h(
      'div',
      { class: 'field' },
      h('label', { for: 'address' }, 'Address, or repository on Hugging Face'),
      form,
      wrong,
    ),
    h(
      'div',
      { class: 'row' },
      h('button', { type: 'button', class: 'button', onclick: () => void file(false) }, 'Open a .gguf file…'),
      'webkitdirectory' in HTMLInputElement.prototype &&
        h('button', { type: 'button', class: 'button', onclick: () => void file(true) }, 'Open a folder…'),
    ),
    h(
      'p',
      { class: 'tiny muted' },
      'Files may also be dropped anywhere on the page. They are read where they are and not copied.',
    ),
  );
}

export function openModelDialog(loader: Loader, onLoad: Load): void {
  const load: Load = (choice) => {
    dialog.close();
    onLoad(choice);
  };
  const stored = new StoredGroup(load, loader);
  stored.element.hidden = true; // until it is known that there is something
  const groups = [
    loadedGroup(loader, () => dialog.close()),
    stored.element,
    presetGroup(load),
    otherGroup(load),
  ];
  const dialog = openDialog(
    'Models',
    groups.filter((group) => group !== null),
  );
  dialog.classList.add('models-dialog');
  const presets = dialog.querySelectorAll<HTMLElement>('[data-name]');
  void stored.draw((names) => presets.forEach((row) => (row.hidden = names.has(row.dataset.name!))));
}
