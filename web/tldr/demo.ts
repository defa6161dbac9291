// The demo page: whichever model is chosen gets a widget. The model that comes with the pages is last, since
// it cannot summarise an article.
import { CARRIED, PRESETS } from '../chat/models.ts';
import { byId, h } from '../shared/dom.ts';
import { formatBytes } from '../shared/format.ts';
import { startServiceWorker } from '../shared/pwa.ts';
import { mount } from './tldr.ts';

const select = byId<HTMLSelectElement>('model');
for (const preset of [...PRESETS.filter((one) => one !== CARRIED), CARRIED])
  select.append(h('option', { value: preset.source }, `${preset.name}, ${formatBytes(preset.size)}`));

select.addEventListener('change', () => {
  const preset = PRESETS.find((one) => one.source === select.value)!;
  byId('shown').textContent = preset === CARRIED ? '../models/stories.gguf' : preset.source;
  byId('model-note').textContent = preset === CARRIED ? byId('model-note').dataset.carried! : preset.note;
  document.querySelectorAll('.tern-tldr').forEach((old) => old.remove());
  mount({ model: preset.source, target: 'article', device: preset.device });
});
startServiceWorker();
