// The chat page: keeps the conversation that is shown, the model, and what is being written, and tells the
// views when one of them changes.
import { byId, h, icon, iconButton, saveFile, toast } from '../shared/dom.ts';
import { startServiceWorker } from '../shared/pwa.ts';
import { type Outcome, write } from './answer.ts';
import { confirmDialog } from './dialogs.ts';
import { listenForDrops } from './drops.ts';
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
import { type Choice, Loader, nameOfChoice } from './loader.ts';
import { openModelDialog } from './model_dialog.ts';
import { LoadingPanel } from './loading_panel.ts';
import { CARRIED, deviceOf } from './models.ts';
import { loadOptions, loadSettings, samplingOptions, saveSettings, type Settings } from './settings.ts';
import { openSettingsDialog } from './settings_dialog.ts';
import { Sidebar } from './sidebar.ts';
import { openStore, type Store } from './store.ts';
import { TextView } from './text_view.ts';
import { statsText, Thread } from './thread.ts';
import { showWelcome } from './welcome.ts';

class ChatPage {
  private readonly loader = new Loader();
  private readonly settings: Settings = loadSettings();
  private readonly scroller = byId('scroller');
  private readonly input = byId<HTMLTextAreaElement>('input');
  private readonly sendButton = byId<HTMLButtonElement>('send');
  private readonly latest = byId('latest');
  private readonly panel = new LoadingPanel(byId('loading'), {
    cancel: () => this.cancelLoad(),
    load: (choice) => this.load(choice),
    onProcessor: (choice) => {
      this.change({ device: 'wasm' });
      this.load(choice);
    },
    models: () => this.openModels(),
    close: () => void this.loader.unload(),
  });
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
  private talk = newConversation('chat');
  private running: { talk: Conversation; abort: AbortController } | null = null;
  private pending: (() => void) | null = null; // what is done as soon as a model is there
  private followsEnd = true;
  private keepTimer = 0;
  private lastChoice: Choice | null = null;

  async start(): Promise<void> {
    this.buildTop();
    this.listen();
    this.store = await openStore();
    this.store.onChange(() => void this.list());
    if (!this.store.lasting)
      byId('kept').textContent = 'This window keeps nothing: conversations end with it.';
    const wanted = new URLSearchParams(location.hash.slice(1));
    await this.list();
    if (wanted.get('talk')) await this.open(wanted.get('talk')!);
    this.draw();
    this.loadFirst();
    const prompt = new URLSearchParams(location.search).get('prompt');
    if (prompt && isEmpty(this.talk)) this.input.value = prompt.slice(0, 4000);
    this.fitInput();
    if (!matchMedia('(pointer: coarse)').matches) this.focusField();
    startServiceWorker();
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
    this.loader.addEventListener('change', () => this.loaderChanged());
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
    listenForDrops(byId('drop'), (files) => this.load({ files }));
    // The keyboard of a phone covers the page's lower part where the browser does not make it smaller.
    const view = window.visualViewport;
    const fit = () => {
      document.documentElement.style.setProperty('--height', `${Math.round(view!.height)}px`);
      if (view!.offsetTop > 0) scrollTo(0, 0);
      if (this.followsEnd) this.scrollToEnd();
    };
    view?.addEventListener('resize', fit);
  }

  private announce(text: string): void {
    byId('announce').textContent = text;
  }

  // ---- Models ----------------------------------------------------------------------------------------

  private loadFirst(): void {
    const saving = (navigator as { connection?: { saveData?: boolean } }).connection?.saveData === true;
    const last = this.settings.lastModel;
    if (last) this.load({ source: last });
    else if (!saving) this.load({ source: CARRIED.source, name: CARRIED.name });
  }

  private load(choice: Choice): void {
    this.stop();
    this.lastChoice = choice;
    this.announce(`Loading ${nameOfChoice(choice)}`);
    const options = loadOptions(this.settings);
    if (options.device === 'auto' && 'source' in choice) options.device = deviceOf(choice.source);
    void this.loader.load(choice, options);
  }

  private loaderChanged(): void {
    const { state } = this.loader;
    if (state.kind === 'ready') {
      this.announce(`${state.name} is ready.`);
      if (this.lastChoice && 'source' in this.lastChoice) this.change({ lastModel: this.lastChoice.source });
      for (const note of state.tern.info.storage === 'memory' ? state.tern.info.notes.slice(0, 1) : [])
        toast(note);
      const pending = this.pending;
      this.pending = null;
      pending?.();
    } else if (state.kind === 'none') this.pending = null;
    this.drawModel();
    if (state.kind !== 'loading') this.draw();
  }

  private drawModel(): void {
    const { state } = this.loader;
    byId('model-name').textContent = state.kind === 'none' ? 'Choose a model' : state.name;
    const device = byId('device');
    device.hidden = state.kind !== 'ready';
    if (state.kind === 'ready') device.textContent = state.tern.info.device;
    this.panel.show(state, this.settings.device !== 'wasm');
  }

  private cancelLoad(): void {
    const { state } = this.loader;
    const progress = state.kind === 'loading' && state.remembers ? state.progress : null;
    const part = progress?.phase === 'download' && progress.loaded > 0;
    this.loader.cancel();
    toast(part ? 'Cancelled. What is downloaded stays; the next load goes on from there.' : 'Cancelled.');
  }

  private openModels(): void {
    openModelDialog(this.loader, (choice) => this.load(choice));
  }

  private openSettings(): void {
    openSettingsDialog(
      this.settings,
      this.loader.tern?.info ?? null,
      (changes) => this.change(changes),
      () => {
        if (this.lastChoice) this.load(this.lastChoice);
      },
    );
  }

  private change(changes: Partial<Settings>): void {
    Object.assign(this.settings, changes);
    saveSettings(this.settings);
  }

  /** Calls `action` now, or when the model is there; opens the picker if none is on its way. */
  private withModel(action: () => void): void {
    if (this.loader.state.kind === 'ready') return action();
    this.pending = action;
    if (this.loader.state.kind !== 'loading') this.openModels();
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

  private get writing(): boolean {
    return this.running?.talk === this.talk;
  }

  private submit(): void {
    if (this.running) return this.stop();
    const content = this.input.value.trim();
    if (!content) return;
    this.withModel(() => {
      if (this.input.value.trim() === content) {
        this.input.value = '';
        this.fitInput();
      }
      this.talk.messages.push({ role: 'user', content });
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
    const { talk, loader } = this;
    if (loader.state.kind !== 'ready') return;
    const { tern, name } = loader.state;
    const messages = messagesForModel(talk, this.settings.system);
    const message: ChatMessage = { role: 'assistant', content: '' };
    talk.messages.push(message);
    const outcome = await this.run(
      talk,
      name,
      (signal, onText) =>
        write(
          tern,
          name,
          (options) => tern.chat(messages, { ...samplingOptions(this.settings), ...options }),
          signal,
          onText,
        ),
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
    if (this.running || this.loader.state.kind !== 'ready') return;
    const { tern, name } = this.loader.state;
    const prompt = talk.text;
    talk.pieces.push(prompt.length);
    this.text.show(talk, true);
    const options = { ...samplingOptions(this.settings), maxTokens: this.settings.pieceTokens };
    const outcome = await this.run(
      talk,
      name,
      (signal, onText) =>
        write(tern, name, (more) => tern.generate(prompt, { ...options, ...more }), signal, onText),
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
    model: string,
    ask: (signal: AbortSignal, onText: (piece: string) => void) => Promise<Outcome>,
    add: (piece: string) => void,
  ): Promise<Outcome> {
    const abort = new AbortController();
    this.running = { talk, abort };
    talk.model = model;
    talk.updated = Date.now();
    this.followsEnd = true;
    this.draw();
    this.scrollToEnd();
    history.replaceState(null, '', `${location.pathname}#talk=${talk.id}`);
    this.announce('Writing');
    void this.keep(talk);
    const outcome = await ask(abort.signal, (piece) => {
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

  private stop(): void {
    this.running?.abort.abort();
  }

  // ---- What is shown ---------------------------------------------------------------------------------

  private draw(): void {
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
    showWelcome(byId('welcome'), this.talk.kind, this.loader.state, {
      kind: (kind) => this.create(kind),
      begin: (text) => this.begin(text),
    });
  }

  /** Takes one of the ideas that an empty page shows. */
  private begin(text: string): void {
    if (this.talk.kind === 'text') {
      this.talk.text = text;
      this.draw();
      void this.continueText();
    } else {
      this.input.value = text;
      this.submit();
    }
  }

  private drawSend(): void {
    const busy = this.running !== null;
    const label = busy ? 'Stop (Escape)' : 'Send';
    this.sendButton.replaceChildren(icon(busy ? 'stop' : 'send'));
    this.sendButton.setAttribute('aria-label', label);
    this.sendButton.title = label;
    this.sendButton.disabled = !busy && !this.input.value.trim();
  }

  private drawStatus(): void {
    const { state } = this.loader;
    const elsewhere = this.running && !this.writing ? 'Another conversation is being written. ' : '';
    byId('status').textContent =
      elsewhere + (this.pending && state.kind === 'loading' ? 'Sent as soon as the model is there.' : '');
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

  private focusField(): void {
    if (this.talk.kind === 'text') this.text.focus();
    else this.input.focus({ preventScroll: true });
  }

  private scrollToEnd(): void {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}

void new ChatPage().start();
