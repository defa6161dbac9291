// The page of `tern serve`: the chat, with a model that computes in the server that the page came from.
import { openDialog } from '../chat/dialogs.ts';
import { listenForDrops } from '../chat/drops.ts';
import type { AnswerStats } from '../chat/history.ts';
import { ChatPage, type Engine } from '../chat/page.ts';
import { openSettingsDialog, type Usual } from '../chat/settings_dialog.ts';
import type { Greeting } from '../chat/welcome.ts';
import { byId, h, iconButton } from '../shared/dom.ts';
import { Client, type Props } from './client.ts';
import { askForKey } from './key_dialog.ts';
import { openStatusDialog } from './status_dialog.ts';

type State = 'asking' | 'ready' | 'failed';

class ServerPage extends ChatPage {
  private readonly client = new Client();
  private state: State = 'asking';
  private failure = '';
  private models: string[] = [];
  private usual: Usual | null = null;
  private readonly meter = byId('context');

  protected get engine(): Engine | null {
    return this.state === 'ready' ? { writes: this.client, name: this.client.model, device: '' } : null;
  }

  protected get comes(): boolean {
    return this.state === 'asking';
  }

  protected get modelName(): string {
    const { state } = this;
    return state === 'ready' ? this.client.model : state === 'asking' ? 'Connecting…' : 'No connection';
  }

  protected greeting(): Greeting {
    return {
      title: this.client.model || 'tern',
      lead:
        this.state === 'failed'
          ? this.failure
          : 'It runs on the server that this page came from. Conversations stay in this browser.',
      stories: /stories/i.test(this.client.model),
      icon: 'page/icon.svg',
    };
  }

  protected begin(): void {
    this.client.onKeyWanted = askForKey;
    byId('top-right').prepend(
      iconButton('wave', 'What the server does', () => openStatusDialog(this.client)),
    );
    const texts = { single: () => true, none: 'Nothing that was dropped is a file.' };
    listenForDrops(byId('drop'), texts, (files) => void this.files.add(files));
    void this.connect(this.settings.lastModel);
  }

  /** Asks what the server has; takes the model of that name, else the first. */
  private async connect(wanted: string | null): Promise<void> {
    this.state = 'asking';
    this.engineChanged();
    try {
      this.models = await this.client.models();
      this.client.model =
        this.models.find((name) => name === wanted) ?? this.models[0] ?? this.client.model;
      this.read(await this.client.props());
      this.state = 'ready';
      this.announce(`${this.client.model} is ready.`);
    } catch (error) {
      this.state = 'failed';
      this.failure = (error as Error).message;
      this.pending = null;
      this.announce(this.failure);
    }
    this.engineChanged();
  }

  private read({ default_generation_settings: given, modalities }: Props): void {
    const { params = {} } = given ?? {};
    this.files.sees = modalities?.vision ?? false;
    this.client.context = given?.n_ctx ?? 0;
    this.usual = {
      ...(params.temperature !== undefined && { temperature: params.temperature }),
      ...(params.top_p !== undefined && { topP: params.top_p }),
      ...(params.top_k !== undefined && { topK: params.top_k }),
      ...(params.min_p !== undefined && { minP: params.min_p }),
      ...(params.repeat_penalty !== undefined && { repeatPenalty: params.repeat_penalty }),
    };
  }

  protected openModels(): void {
    if (this.state === 'failed') return void this.connect(this.settings.lastModel);
    const dialog = openDialog('Models of this server', [
      h(
        'ul',
        { class: 'models' },
        ...this.models.map((name) => {
          const current = name === this.client.model;
          const take = () => {
            dialog.close();
            this.change({ lastModel: name });
            void this.connect(name);
          };
          return h(
            'li',
            { class: current ? 'current' : '' },
            h('span', { class: 'grow name' }, name),
            current
              ? h('span', { class: 'chip' }, 'in use')
              : h('button', { type: 'button', class: 'button small', onclick: take }, 'Use'),
          );
        }),
      ),
    ]);
  }

  protected openSettings(): void {
    openSettingsDialog(this.settings, this.usual, (changes) => this.change(changes), null);
  }

  protected override drawStatus(): void {
    super.drawStatus();
    const stats = this.talk.messages.findLast((message) => message.stats)?.stats;
    this.drawMeter(this.talk.kind === 'chat' ? stats : undefined);
  }

  /** How full the context is after the last answer. */
  private drawMeter(stats: AnswerStats | undefined): void {
    const { context } = this.client;
    const used = stats ? stats.promptTokens + stats.tokens : 0;
    this.meter.hidden = !stats || !context || used === 0;
    if (this.meter.hidden) return;
    const text = `${used.toLocaleString()} of ${context.toLocaleString()} tokens of context`;
    const nearlyFull = used > 0.85 * context;
    this.meter.replaceChildren(
      h('meter', { min: 0, max: context, value: used, 'aria-label': text }),
      h('span', { class: nearlyFull ? 'warn' : '' }, text),
    );
  }
}

void new ServerPage().start();
