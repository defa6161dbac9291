// A page to chat on: keeps the conversation that is shown and what is being written, and tells the views
// when one of them changes. Where the model computes is left to two pages: main.ts (in the browser) and
// ../server/main.ts (in the server that the page came from).
import { byId, h, icon, iconButton, saveFile, toast } from '../shared/dom.ts';
import { Attachments } from './attachments.ts';
import { type Ask, type Outcome, write, type Writes } from './answer.ts';
import { confirmDialog } from './dialogs.ts';
import { readDraft, writeDraft } from './drafts.ts';
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
  type Summary,
  titleOf,
} from './history.ts';
import { Keeper } from './keeper.ts';
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
  private readonly thread = new Thread(byId('thread'), this.scroller, {
    regenerate: () => this.regenerate(),
    edit: (content) => this.editAndSend(content),
  });
  private readonly text = new TextView(byId('page-text'), byId('text-actions'), this.scroller, {
    go: () => void this.continueText(),
    stop: () => this.stop(),
    changed: () => this.keeper.keepSoon(this.talk),
  });
  private readonly sidebar = new Sidebar({
    open: (id) => void this.open(id, 'push'),
    rename: (id, title) => void this.rename(id, title),
    remove: (talk) => void this.remove(talk),
    export: (talk, as) => void this.export(talk, as),
    exportAll: () => void this.exportAll(),
    importFile: () => void this.importFile(),
  });
  private store!: Store;
  private keeper!: Keeper;
  protected talk = newConversation('chat');
  protected running: { talk: Conversation; abort: AbortController } | null = null;
  protected pending: (() => void) | null = null; // what is done as soon as a model is there
  private followsEnd = true;
  private draftTimer = 0;

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
    this.keeper = new Keeper(this.store, {
      listed: () => this.list(),
      changed: (talk) => this.otherContent(talk),
      gone: (id) => this.goneElsewhere(id),
      tell: toast,
      isBusy: (talk) => this.running?.talk === talk || (this.talk === talk && this.thread.isEditing),
    });
    if (!this.store.lasting)
      byId('kept').textContent = 'This window keeps nothing: conversations end with it.';
    await this.keeper.read();
    this.takeDraft();
    await this.openAddressed();
    this.draw();
    this.begin();
    const prompt = new URLSearchParams(location.search).get('prompt');
    if (prompt && isEmpty(this.talk)) this.input.value = prompt.slice(0, 4000);
    this.fitInput();
    this.drawSend();
    if (!matchMedia('(pointer: coarse)').matches) this.focusField();
  }

  // ---- The page's frame ------------------------------------------------------------------------------

  private buildTop(): void {
    byId('top-left').append(iconButton('menu', 'Conversations', () => this.sidebar.open()));
    byId('top-right').append(
      iconButton('settings', 'Settings', () => this.openSettings()),
      iconButton('plus', 'New conversation (Ctrl+Shift+O)', () => {
        this.sidebar.close();
        this.create();
      }),
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
      this.draftTimer ||= window.setTimeout(() => this.keepDraft(), 300);
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
      this.keepDraft();
      this.keeper?.end();
    });
    document.addEventListener('visibilitychange', () => document.hidden && this.keeper?.keepAll());
    addEventListener('pageshow', (event) => event.persisted && void this.keeper?.lookAgain());
    addEventListener('popstate', () => void this.openAddressed());
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

  private list(): void {
    this.sidebar.show(this.keeper.list, this.talk.id);
  }

  private create(kind: Conversation['kind'] = this.talk.kind): void {
    this.select(newConversation(kind), 'push');
    this.focusField();
  }

  private async open(id: string, how: 'push' | 'keep'): Promise<void> {
    // One that is being written is more than what is stored of it.
    const talk = this.running?.talk.id === id ? this.running.talk : await this.store.get(id);
    if (talk) this.select(talk, how);
    else toast('The conversation is not there any more.');
    this.focusField();
  }

  /** The conversation that the address names: at the beginning, and when somebody goes back or forward. */
  private async openAddressed(): Promise<void> {
    const id = new URLSearchParams(location.hash.slice(1)).get('talk');
    if (id && id !== this.talk.id) await this.open(id, 'keep');
    else if (!id && !isEmpty(this.talk)) this.select(newConversation(this.talk.kind), 'keep');
  }

  private address(talk: Conversation, how: 'push' | 'replace' = 'replace'): void {
    const to = location.pathname + location.search + (isEmpty(talk) ? '' : `#talk=${talk.id}`);
    if (to === location.pathname + location.search + location.hash) return;
    if (how === 'push') history.pushState(null, '', to);
    else history.replaceState(null, '', to);
  }

  /** push: going back leads to the one before; keep: the address names it already. */
  private select(talk: Conversation, how: 'push' | 'replace' | 'keep'): void {
    this.keeper.keepAll();
    this.keepDraft();
    this.talk = talk;
    this.pending = null;
    this.hold();
    this.takeDraft();
    this.followsEnd = true;
    if (how !== 'keep') this.address(talk, how);
    this.draw();
    this.scrollToEnd();
    this.list();
    if (talk.writing) void this.keeper.lookForWriter(talk);
  }

  private hold(): void {
    this.keeper.hold(this.talk, ...(this.running ? [this.running.talk] : []));
  }

  private keepDraft(): void {
    clearTimeout(this.draftTimer);
    this.draftTimer = 0;
    if (this.talk.kind === 'chat') writeDraft(isEmpty(this.talk) ? '' : this.talk.id, this.input.value);
  }

  private takeDraft(): void {
    this.input.value = readDraft(isEmpty(this.talk) ? '' : this.talk.id);
    this.fitInput();
  }

  /** Another tab went on with it, or it got an id of its own. */
  private otherContent(talk: Conversation): void {
    if (talk !== this.talk) return;
    this.address(talk);
    this.draw();
    if (this.followsEnd) this.scrollToEnd();
    this.list();
    if (talk.writing) void this.keeper.lookForWriter(talk);
  }

  private goneElsewhere(id: string): void {
    if (this.running?.talk.id === id) this.stop();
    if (this.talk.id !== id) return;
    toast('The conversation was deleted in another tab.');
    const typed = this.input.value;
    this.select(newConversation(this.talk.kind), 'replace');
    this.input.value ||= typed;
    this.fitInput();
    this.drawSend();
    writeDraft(id, '');
  }

  private async rename(id: string, title: string): Promise<void> {
    const talk = this.talk.id === id ? this.talk : await this.store.get(id);
    if (!talk) return;
    talk.title = title;
    talk.named = title !== '';
    await this.keeper.keep(talk);
  }

  private async remove(talk: Summary): Promise<void> {
    if (!(await confirmDialog('Delete the conversation?', `“${talk.title}” will be gone for good.`, 'Delete')))
      return;
    if (this.running?.talk.id === talk.id) this.stop();
    await this.keeper.delete(talk.id);
    if (this.talk.id === talk.id) {
      this.select(newConversation(this.talk.kind), 'replace');
      this.focusField();
    }
    writeDraft(talk.id, '');
  }

  private async export({ id, title }: Summary, as: 'markdown' | 'json'): Promise<void> {
    const talk = this.talk.id === id ? this.talk : await this.store.get(id);
    if (!talk) return;
    const name =
      title
        .replace(/[^\p{L}\p{N} -]+/gu, '')
        .trim()
        .slice(0, 60) || 'conversation';
    if (as === 'json') saveFile(`${name}.json`, exportJson([talk]), 'application/json');
    else saveFile(`${name}.md`, exportMarkdown(talk, this.settings.system), 'text/markdown');
  }

  private async exportAll(): Promise<void> {
    saveFile('tern-conversations.json', exportJson(await this.store.all()), 'application/json');
  }

  private importFile(): void {
    const input = h('input', {
      type: 'file',
      accept: '.json,application/json',
      onchange: async () => {
        try {
          const talks = importJson(await input.files![0]!.text());
          for (const talk of talks) await this.keeper.keep(talk);
          toast(`${talks.length} conversation${talks.length === 1 ? '' : 's'} imported.`);
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
        this.keepDraft();
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
    const ask: Ask = (options) => engine.writes.chat(messages, { ...samplingOptions(this.settings), ...options });
    const outcome = await this.keeper.whileWriting(talk, async () =>
      Object.assign(message, await this.run(talk, engine, ask, (piece) => (message.content += piece))),
    );
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
    const ask: Ask = (more) => engine.writes.generate(prompt, { ...options, ...more });
    const outcome = await this.keeper.whileWriting(talk, () =>
      this.run(talk, engine, ask, (piece) => (talk.text += piece)),
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
    this.hold();
    talk.model = engine.name;
    talk.updated = Date.now();
    this.followsEnd = true;
    this.draw();
    this.scrollToEnd();
    this.address(talk);
    this.announce('Writing');
    this.keeper.keepSoon(talk);
    this.keeper.keepAll();
    const outcome = await write(engine, ask, abort.signal, (piece) => {
      add(piece);
      this.keeper.keepSoon(talk);
      if (this.talk !== talk) return;
      if (talk.kind === 'chat') this.thread.grow();
      else this.text.show(talk, true);
      if (this.followsEnd) this.scrollToEnd();
    });
    this.running = null;
    this.hold();
    return outcome;
  }

  private finish(talk: Conversation, outcome?: Outcome): void {
    talk.updated = Date.now();
    void this.keeper.keep(talk);
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
    byId('heading').textContent = isEmpty(talk) ? '' : titleOf(talk);
    byId('heading').hidden = isEmpty(talk);
    byId('composer').hidden = isText;
    byId('thread').hidden = isText;
    if (isText) this.thread.clear();
    else this.thread.show(talk, writing || talk.writing);
    this.text.show(isText ? talk : null, writing || talk.writing);
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
    if (this.sendButton.title !== label || !this.sendButton.firstChild) {
      this.sendButton.replaceChildren(icon(busy ? 'stop' : 'send'));
      this.sendButton.setAttribute('aria-label', label);
      this.sendButton.title = label;
    }
    this.sendButton.disabled = !busy && !this.input.value.trim() && !this.files.hasImages;
  }

  protected drawStatus(): void {
    const elsewhere =
      this.talk.writing && !this.writing
        ? 'Another tab writes this answer. '
        : this.running && !this.writing
          ? 'Another conversation is being written. '
          : '';
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
