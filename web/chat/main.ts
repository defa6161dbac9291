// The chat page of a model that computes in the browser: what loads, shows and changes that model.
import { byId, toast } from '../shared/dom.ts';
import { deviceWords } from '../shared/format.ts';
import { startServiceWorker } from '../shared/pwa.ts';
import { listenForDrops } from './drops.ts';
import { LoadingPanel } from './loading_panel.ts';
import { type Choice, Loader, nameOfChoice } from './loader.ts';
import { openModelDialog } from './model_dialog.ts';
import { CARRIED, deviceOf } from './models.ts';
import { ChatPage, type Engine } from './page.ts';
import { loadOptions } from './settings.ts';
import { openSettingsDialog } from './settings_dialog.ts';
import type { Greeting } from './welcome.ts';

class LocalPage extends ChatPage {
  private readonly loader = new Loader();
  private readonly panel = new LoadingPanel(byId('loading'), {
    cancel: () => this.cancelLoad(),
    load: (choice) => this.load(choice),
    onProcessor: (choice) => {
      this.change({ device: 'wasm' });
      this.load(choice);
    },
    models: () => this.openModels(),
    close: () => this.loader.dismiss(),
  });
  private lastChoice: Choice | null = null;

  protected get engine(): Engine | null {
    const { state } = this.loader;
    return state.kind === 'ready'
      ? { writes: state.tern, name: state.name, device: deviceWords(state.tern.info.device) }
      : null;
  }

  protected get comes(): boolean {
    return this.loader.state.kind === 'loading';
  }

  protected get modelName(): string {
    const { state } = this.loader;
    return state.kind === 'none' ? 'Choose a model' : state.name;
  }

  protected greeting(): Greeting {
    const { state } = this.loader;
    const guess = state.kind === 'ready' ? state.tern.info.templateGuess : null;
    return {
      title: 'A model of your own, in this page',
      lead: guess
        ? `${guess.charAt(0).toUpperCase()}${guess.slice(1)}. It may be better at continuing text than at chatting.`
        : 'It runs on this device. What you write stays here, and no network is needed once it is loaded.',
      stories: state.kind === 'none' || state.name.toLowerCase() === CARRIED.name.toLowerCase(),
      icon: '../icons/icon.svg',
    };
  }

  protected begin(): void {
    this.loader.addEventListener('change', () => this.loaderChanged());
    const all = { single: () => true, none: 'Nothing that was dropped is a file.' };
    listenForDrops(byId('drop'), all, (files) => this.takeFiles(files));
    const saving = (navigator as { connection?: { saveData?: boolean } }).connection?.saveData === true;
    const last = this.settings.lastModel;
    if (last) this.load({ source: last });
    else if (!saving) this.load({ source: CARRIED.source, name: CARRIED.name });
    startServiceWorker();
  }

  /** A model, else what goes with the next message. */
  private takeFiles(files: File[]): void {
    const models = files.filter(({ name }) => /\.gguf$/i.test(name));
    const isFolder = files.some(({ name }) => name.endsWith('.safetensors'));
    if (models.length || isFolder) this.load({ files: isFolder ? files : models });
    else void this.files.add(files);
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
    this.files.sees = state.kind === 'ready' && state.tern.media.hasVision;
    if (state.kind === 'ready') {
      const { choice } = this.loader;
      this.lastChoice = choice;
      this.announce(
        state.problem ? `${state.problem.name} could not be loaded. ${state.problem.message}` : `${state.name} is ready.`,
      );
      if (choice && 'source' in choice) this.change({ lastModel: choice.source });
      for (const note of state.tern.info.storage === 'memory' ? state.tern.info.notes.slice(0, 1) : [])
        toast(note);
    } else if (state.kind === 'none') this.pending = null;
    this.panel.show(state, this.settings.device !== 'wasm');
    this.engineChanged();
  }

  private cancelLoad(): void {
    const { state } = this.loader;
    const progress = state.kind === 'loading' && state.remembers ? state.progress : null;
    const part = progress?.phase === 'download' && progress.loaded > 0;
    this.loader.cancel();
    toast(part ? 'Cancelled. What is downloaded stays; the next load goes on from there.' : 'Cancelled.');
  }

  protected openModels(): void {
    openModelDialog(this.loader, (choice) => this.load(choice));
  }

  protected openSettings(): void {
    openSettingsDialog(
      this.settings,
      this.loader.tern?.info ?? null,
      (changes) => this.change(changes),
      () => {
        if (this.lastChoice) this.load(this.lastChoice);
      },
    );
  }
}

void new LocalPage().start();
