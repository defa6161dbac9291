// A page to chat on: keeps the conversation that is shown and what is being written, and tells the views
// when one of them changes. Where the model computes is left to two pages: main.ts (in the browser) and
// ../server/main.ts (in the server that the page came from).
import { byId, h, icon, iconButton, saveFile, toast } from '../shared/dom.ts';
import { Attachments } from './attachments.ts';
import { type Ask, type Outcome, write, type Writes } from './answer.ts';
import { confirmDialog } from './dialogs.ts';
import {
  type ChatMessage,
  type Conversation,
  dropAnswer,
  editLast,
  exportJson,
  exportMarkdown,
  importJson,
  isEmpty,
  messagesForModel,
  newConversation,
  splitThought,
  titleOf,
} from './history.ts';
import { loadSettings, samplingOptions, saveSettings, type Settings } from './settings.ts';
import { Sidebar } from './sidebar.ts';
import { openStore, type Store } from './store.ts';
import { TextView } from './text_view.ts';
import { statsText, Thread } from './thread.ts';
import { showWelcome, type Greeting } from './welcome.ts';

/** The model that answers now. */
export interface Engine {
  writes: Writes;
  name: string; // of the model
  device: string; // where it computes, for people
}

export abstract class ChatPage {
  protected readonly settings: Settings = loadSettings();
  private readonly scroller = byId('scroller');
  private readonly input = byId<HTMLTextAreaElement>('input');
  private readonly sendButton = byId<HTMLButtonElement>('send');
  private readonly latest = byId('latest');
  private readonly thread = new Thread(byId('thread'), {
    regenerate: () => this.regenerate(),
    edit: (content) => this.editAndSend(content),
  });
  private readonly text = new TextView(byId('page-text'), byId('text-actions'), this.scroller, {
    go: () => void this.continueText(),
    stop: () => this.stop(),
    changed: () => this.keepSoon(),
  });
  private readonly sidebar = new Sidebar({
    open: (id) => void this.open(id),
    create: () => this.create(),
    rename: (id, title) => void this.rename(id, title),
    remove: (talk) => void this.remove(talk),
    export: (talk, as) => this.export(talk, as),
    exportAll: () => void this.exportAll(),
    importFile: () => void this.importFile(),
  });
  private store!: Store;
  protected talk = newConversation('chat');
  protected running: { talk: Conversation; abort: AbortController } | null = null;
  protected pending: (() => void) | null = null; // what is done as soon as a model is there
  private followsEnd = true;
  private keepTimer = 0;

  // ---- What the page of a kind of engine adds ----------------------------------------------------------

  /** The model, if it is there. */
  protected abstract get engine(): Engine | null;
  /** Whether it is on its way: what is asked now is sent when it is there. */
  protected abstract get comes(): boolean;
  protected abstract get modelName(): string;
  protected abstract openModels(): void;
  protected abstract openSettings(): void;
  /** Looks for a first model; the page is drawn. */
  protected abstract begin(): void;
  protected abstract greeting(): Greeting;
  /** What goes with the next message: texts, and images where the model sees. */
  protected readonly files = new Attachments(byId('files'), () => this.drawSend());

  private listenForFiles(): void {
    byId('composer').prepend(
      iconButton('clip', 'Attach a text or an image', () => this.files.choose(), 'attach'),
    );
    this.input.addEventListener('paste', (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length === 0) return;
      event.preventDefault();
      void this.files.add(files);
    });
  }

  async start(): Promise<void> {
    this.buildTop();
    this.listen();
    this.listenForFiles();
    this.store = await openStore();
    this.store.onChange(() => void this.list());
    if (!this.store.lasting)
      byId('kept').textContent = 'This window keeps nothing: conversations end with it.';
    const wanted = new URLSearchParams(location.hash.slice(1));
    await this.list();
    if (wanted.get('talk')) await this.open(wanted.get('talk')!);
    this.draw();
    this.begin();
    const prompt = new URLSearchParams(location.search).get('prompt');
    if (prompt && isEmpty(this.talk)) this.input.value = prompt.slice(0, 4000);
    this.fitInput();
    if (!matchMedia('(pointer: coarse)').matches) this.focusField();
  }

  // ---- The page's frame ------------------------------------------------------------------------------

  private buildTop(): void {
    byId('top-left').append(iconButton('menu', 'Conversations', () => this.sidebar.open()));
    byId('top-right').append(
      iconButton('settings', 'Settings', () => this.openSettings()),
      iconButton('plus', 'New conversation', () => this.create()),
    );
    byId('model-button').append(h('span', { class: 'chip', id: 'device', hidden: true }), icon('chevron'));
    this.latest.append(icon('down'));
  }

  private listen(): void {
    byId('model-button').addEventListener('click', () => this.openModels());
    byId('composer').addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
    this.input.addEventListener('input', () => {
      this.fitInput();
      this.drawSend();
    });
    this.input.addEventListener('keydown', (event) => this.inputKey(event));
    this.latest.addEventListener('click', () => {
      this.followsEnd = true;
      this.scrollToEnd();
      this.focusField();
    });
    this.scroller.addEventListener(
      'scroll',
      () => {
        const { scrollTop, scrollHeight, clientHeight } = this.scroller;
        this.followsEnd = scrollHeight - scrollTop - clientHeight < 48;
        this.latest.hidden = scrollHeight - scrollTop - clientHeight < 160;
      },
      { passive: true },
    );
    addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.running && !document.querySelector('dialog[open], .menu'))
        this.stop();
      if (event.key.toLowerCase() === 'o' && event.shiftKey && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.create();
      }
    });
    addEventListener('pagehide', () => {
      if (!isEmpty(this.talk)) void this.store.put(this.talk);
    });
    // The keyboard of a phone covers the page's lower part where the browser does not make it smaller.
    const view = window.visualViewport;
    const fit = () => {
      document.documentElement.style.setProperty('--height', `${Math.round(view!.height)}px`);
      if (view!.offsetTop > 0) scrollTo(0, 0);
      if (this.followsEnd) this.scrollToEnd();
    };
    view?.addEventListener('resize', fit);
  }

  protected announce(text: string): void {
    byId('announce').textContent = text;
  }

  // ---- Models ----------------------------------------------------------------------------------------

  /** The model came, went or changed. */
  protected engineChanged(): void {
    const { engine } = this;
    byId('model-name').textContent = this.modelName;
    const device = byId('device');
    device.hidden = !engine?.device;
    device.textContent = engine?.device ?? '';
    if (engine) {
      const { pending } = this;
      this.pending = null;
      pending?.();
    }
    if (engine || !this.comes) this.draw();
  }

  protected change(changes: Partial<Settings>): void {
    Object.assign(this.settings, changes);
    saveSettings(this.settings);
  }

  /** Calls `action` now, or when the model is there; opens the picker if none is on its way. */
  private withModel(action: () => void): void {
    if (this.engine) return action();
    this.pending = action;
    if (!this.comes) this.openModels();
    this.drawStatus();
  }

  // ---- Conversations ---------------------------------------------------------------------------------

  private async list(): Promise<void> {
    this.sidebar.show(await this.store.list(), this.talk.id);
  }

  private keepSoon(): void {
    this.keepTimer ||= window.setTimeout(() => {
      this.keepTimer = 0;
      void this.keep(this.talk);
    }, 800);
  }

  private async keep(talk: Conversation): Promise<void> {
    if (isEmpty(talk)) return;
    talk.title = titleOf(talk);
    try {
      await this.store.put(talk);
      await this.list();
    } catch (error) {
      toast(`The conversation could not be kept: ${(error as Error).message}`);
    }
  }

  private create(kind: Conversation['kind'] = this.talk.kind): void {
    this.select(newConversation(kind));
    this.focusField();
  }

  private async open(id: string): Promise<void> {
    // One that is being written is more than what is stored of it.
    const talk = this.running?.talk.id === id ? this.running.talk : await this.store.get(id);
    if (talk) this.select(talk);
    this.focusField();
  }

  private select(talk: Conversation): void {
    if (this.keepTimer) {
      clearTimeout(this.keepTimer);
      this.keepTimer = 0;
      void this.keep(this.talk);
    }
    this.talk = talk;
    this.followsEnd = true;
    history.replaceState(null, '', location.pathname + (isEmpty(talk) ? '' : `#talk=${talk.id}`));
    this.draw();
    this.scrollToEnd();
    void this.list();
  }

  private async rename(id: string, title: string): Promise<void> {
    const talk = this.talk.id === id ? this.talk : await this.store.get(id);
    if (!talk) return;
    talk.title = title;
    talk.named = title !== '';
    await this.keep(talk);
  }

  private async remove(talk: Conversation): Promise<void> {
    if (
      !(await confirmDialog(
        'Delete the conversation?',
        `“${titleOf(talk)}” will be gone for good.`,
        'Delete',
      ))
    )
      return;
    if (this.running?.talk.id === talk.id) this.stop();
    await this.store.delete(talk.id);
    if (this.talk.id === talk.id) this.create();
    else await this.list();
  }

  private export(talk: Conversation, as: 'markdown' | 'json'): void {
    const name =
      titleOf(talk)
        .replace(/[^\p{L}\p{N} -]+/gu, '')
        .trim()
        .slice(0, 60) || 'conversation';
    if (as === 'json') saveFile(`${name}.json`, exportJson([talk]), 'application/json');
    else saveFile(`${name}.md`, exportMarkdown(talk, this.settings.system), 'text/markdown');
  }

  private async exportAll(): Promise<void> {
    saveFile('tern-conversations.json', exportJson(await this.store.list()), 'application/json');
  }

  private importFile(): void {
    const input = h('input', {
      type: 'file',
      accept: '.json,application/json',
      onchange: async () => {
        try {
          const talks = importJson(await input.files![0]!.text());
          for (const talk of talks) await this.store.put(talk);
          toast(`${talks.length} conversation${talks.length === 1 ? '' : 's'} imported.`);
          await this.list();
        } catch (error) {
          toast((error as Error).message);
        }
      },
    });
    input.click();
  }

  // ---- Writing ---------------------------------------------------------------------------------------

  protected get writing(): boolean {
    return this.running?.talk === this.talk;
  }

  private submit(): void {
    if (this.running) return this.stop();
    const content = this.input.value.trim();
    if (!content && !this.files.hasImages) return;
    this.withModel(() => {
      if (this.input.value.trim() === content) {
        this.input.value = '';
        this.fitInput();
      }
      const files = this.files.take();
      this.talk.messages.push({ role: 'user', content, ...(files.length && { files }) });
      void this.answer();
    });
  }

  private regenerate(): void {
    if (this.running) return;
    this.withModel(() => {
      if (dropAnswer(this.talk)) void this.answer();
    });
  }

  private editAndSend(content: string): void {
    if (this.running) return;
    this.withModel(() => {
      if (editLast(this.talk, content)) void this.answer();
    });
  }

  private async answer(): Promise<void> {
    const { talk, engine } = this;
    if (!engine) return;
    const messages = messagesForModel(talk, this.settings.system);
    const message: ChatMessage = { role: 'assistant', content: '' };
    talk.messages.push(message);
    const outcome = await this.run(
      talk,
      engine,
      (options) => engine.writes.chat(messages, { ...samplingOptions(this.settings), ...options }),
      (piece) => (message.content += piece),
    );
    Object.assign(message, outcome);
    if (this.talk === talk)
      this.announce(outcome.error ?? `Answer: ${splitThought(message.content).answer.slice(0, 2000)}`);
    this.finish(talk);
  }

  private async continueText(): Promise<void> {
    const { talk } = this;
    if (this.running || !talk.text.trim()) return;
    this.withModel(() => void this.continueNow(talk));
  }

  private async continueNow(talk: Conversation): Promise<void> {
    const { engine } = this;
    if (this.running || !engine) return;
    const prompt = talk.text;
    talk.pieces.push(prompt.length);
    this.text.show(talk, true);
    const options = { ...samplingOptions(this.settings), maxTokens: this.settings.pieceTokens };
    const outcome = await this.run(
      talk,
      engine,
      (more) => engine.writes.generate(prompt, { ...options, ...more }),
      (piece) => (talk.text += piece),
    );
    if (talk.text.length === prompt.length) talk.pieces.pop();
    if (outcome.error) toast(outcome.error);
    else if (talk.text.length === prompt.length)
      toast('The model has nothing to add: for it, the text ends here.');
    if (this.talk === talk)
      this.announce(outcome.error ?? `Added: ${talk.text.slice(prompt.length, prompt.length + 2000)}`);
    this.finish(talk, outcome);
  }

  private async run(
    talk: Conversation,
    engine: Engine,
    ask: Ask,
    add: (piece: string) => void,
  ): Promise<Outcome> {
    const abort = new AbortController();
    this.running = { talk, abort };
    talk.model = engine.name;
    talk.updated = Date.now();
    this.followsEnd = true;
    this.draw();
    this.scrollToEnd();
    history.replaceState(null, '', `${location.pathname}#talk=${talk.id}`);
    this.announce('Writing');
    void this.keep(talk);
    const outcome = await write(engine, ask, abort.signal, (piece) => {
      add(piece);
      if (this.talk !== talk) return;
      if (talk.kind === 'chat') this.thread.grow();
      else this.text.show(talk, true);
      if (this.followsEnd) this.scrollToEnd();
      this.keepSoon();
    });
    this.running = null;
    return outcome;
  }

  private finish(talk: Conversation, outcome?: Outcome): void {
    talk.updated = Date.now();
    void this.keep(talk);
    if (this.talk !== talk) return this.drawStatus();
    this.draw();
    if (outcome?.stats) byId('status').textContent = statsText(outcome.stats);
    if (this.followsEnd) this.scrollToEnd();
  }

  protected stop(): void {
    this.running?.abort.abort();
  }

  // ---- What is shown ---------------------------------------------------------------------------------

  protected draw(): void {
    const { talk, writing } = this;
    const isText = talk.kind === 'text';
    document.title = isEmpty(talk) ? 'tern chat' : `${titleOf(talk)} · tern`;
    byId('composer').hidden = isText;
    byId('thread').hidden = isText;
    this.thread.show(isText ? newConversation('chat') : talk, writing);
    this.text.show(isText ? talk : null, writing);
    this.drawWelcome();
    this.drawSend();
    this.drawStatus();
  }

  private drawWelcome(): void {
    byId('welcome').hidden = !isEmpty(this.talk);
    if (!isEmpty(this.talk)) return;
    showWelcome(byId('welcome'), this.talk.kind, this.greeting(), {
      kind: (kind) => this.create(kind),
      begin: (text) => this.take(text),
    });
  }

  /** Takes one of the ideas that an empty page shows. */
  private take(text: string): void {
    if (this.talk.kind === 'text') {
      this.talk.text = text;
      this.draw();
      void this.continueText();
    } else {
      this.input.value = text;
      this.submit();
    }
  }

  protected drawSend(): void {
    const busy = this.running !== null;
    const label = busy ? 'Stop (Escape)' : 'Send';
    this.sendButton.replaceChildren(icon(busy ? 'stop' : 'send'));
    this.sendButton.setAttribute('aria-label', label);
    this.sendButton.title = label;
    this.sendButton.disabled = !busy && !this.input.value.trim() && !this.files.hasImages;
  }

  protected drawStatus(): void {
    const elsewhere = this.running && !this.writing ? 'Another conversation is being written. ' : '';
    byId('status').textContent =
      elsewhere + (this.pending && this.comes ? 'Sent as soon as the model is there.' : '');
  }

  private inputKey(event: KeyboardEvent): void {
    // On a phone the return key makes a new line: there is a button for sending beside it.
    if (
      event.key === 'Enter' &&
      !event.shiftKey &&
      !event.isComposing &&
      !matchMedia('(pointer: coarse)').matches
    ) {
      event.preventDefault();
      if (!this.running) this.submit();
    }
    if (event.key === 'ArrowUp' && !this.input.value && !this.running) {
      event.preventDefault();
      this.thread.editLast();
    }
  }

  private fitInput(): void {
    if (CSS.supports('field-sizing: content')) return;
    this.input.style.height = 'auto';
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  protected focusField(): void {
    if (this.talk.kind === 'text') this.text.focus();
    else this.input.focus({ preventScroll: true });
  }

  private scrollToEnd(): void {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}
