// The form of the settings. Each change holds at once; those of loading ask for the model to be opened again.
import type { TernInfo } from 'tern-engine';
import { h } from '../shared/dom.ts';
import { openDialog } from './dialogs.ts';
import { DEFAULTS, type NumberSetting, RANGES, type Settings } from './settings.ts';

type Change = (changes: Partial<Settings>) => void;

function numberField(settings: Settings, name: NumberSetting, usual: string, change: Change): HTMLElement {
  const { label, min, max, step, hint } = RANGES[name];
  const id = `set-${name}`;
  const wrong = h('span', { class: 'hint', id: `${id}-hint` }, hint);
  const input = h('input', {
    id,
    class: 'input number',
    type: 'number',
    inputmode: 'decimal',
    min,
    max,
    step: step === 1 ? 1 : 'any',
    value: settings[name] === null ? '' : String(settings[name]),
    placeholder: usual,
    'aria-describedby': `${id}-hint`,
  });
  input.addEventListener('change', () => {
    const value = input.value.trim() === '' ? DEFAULTS[name] : Number(input.value);
    const good = value === null || (value >= min && value <= max && (step !== 1 || Number.isInteger(value)));
    input.setAttribute('aria-invalid', String(!good));
    wrong.textContent = good ? hint : `a ${step === 1 ? 'whole ' : ''}number from ${min} to ${max}`;
    if (good) change({ [name]: value });
  });
  return h('div', { class: 'field' }, h('label', { for: id }, label), input, wrong);
}

function choiceField(
  settings: Settings,
  name: 'device' | 'thinking',
  label: string,
  options: [string, string][],
  change: Change,
): HTMLElement {
  const select = h(
    'select',
    { id: `set-${name}`, class: 'input', onchange: () => change({ [name]: select.value }) },
    ...options.map(([value, text]) => h('option', { value, selected: settings[name] === value }, text)),
  );
  return h('div', { class: 'field' }, h('label', { for: `set-${name}` }, label), select);
}

/** Of the model: what an empty field means. */
export type Usual = Partial<Pick<TernInfo, 'temperature' | 'topP' | 'topK' | 'minP' | 'repeatPenalty'>>;

/** reload: opens the model again; null: it is not this page that opens it. */
export function openSettingsDialog(
  settings: Settings,
  info: Usual | null,
  change: Change,
  reload: (() => void) | null,
): void {
  const usual = (value: number | null | undefined, otherwise: number) => `${value ?? otherwise}`;
  const number = (name: NumberSetting, text: string) => numberField(settings, name, text, change);
  const system = h('textarea', {
    id: 'set-system',
    class: 'input',
    rows: 3,
    value: settings.system,
    placeholder: 'Who the model is, and how it should answer',
    onchange: () => change({ system: system.value }),
  });
  const again = h(
    'button',
    {
      type: 'button',
      class: 'button small',
      hidden: info === null,
      onclick: () => {
        dialog.close();
        reload?.();
      },
    },
    'Open the model again with these',
  );
  const dialog = openDialog(
    'Settings',
    [
      h('div', { class: 'field' }, h('label', { for: 'set-system' }, 'System prompt'), system),
      h(
        'section',
        { class: 'group' },
        h('h3', null, 'Sampling'),
        h('p', { class: 'tiny muted' }, 'A field left empty takes the model’s own default.'),
        h(
          'div',
          { class: 'fields' },
          number('temperature', usual(info?.temperature, 0.8)),
          number('topP', usual(info?.topP, 0.95)),
          number('topK', usual(info?.topK, 40)),
          number('minP', usual(info?.minP, 0.05)),
          number('repeatPenalty', usual(info?.repeatPenalty, 1)),
          number('seed', 'another each time'),
        ),
      ),
      h(
        'section',
        { class: 'group' },
        h('h3', null, 'Length'),
        h(
          'div',
          { class: 'fields' },
          number('maxTokens', 'until it ends'),
          number('pieceTokens', String(DEFAULTS.pieceTokens)),
        ),
      ),
      h(
        'section',
        { class: 'group', hidden: reload === null },
        h('h3', null, 'How the model is opened'),
        h(
          'div',
          { class: 'fields' },
          choiceField(
            settings,
            'device',
            'Device',
            [
              ['auto', 'WebGPU if it works here'],
              ['webgpu', 'WebGPU'],
              ['wasm', 'Processor'],
            ],
            change,
          ),
          choiceField(
            settings,
            'thinking',
            'Thinking',
            [
              ['auto', 'As the model likes'],
              ['on', 'On'],
              ['off', 'Off'],
            ],
            change,
          ),
          number('threads', 'one a core'),
          number('context', 'the model’s'),
        ),
        h('div', { class: 'row' }, again),
      ),
    ],
    [
      h(
        'button',
        {
          type: 'button',
          class: 'button',
          onclick: () => {
            change({ ...DEFAULTS, system: settings.system, lastModel: settings.lastModel });
            dialog.close();
            openSettingsDialog(settings, info, change, reload);
          },
        },
        'Defaults',
      ),
      h('button', { type: 'button', class: 'button primary', onclick: () => dialog.close() }, 'Done'),
    ],
  );
}
