// tern-engine/microphone: microphone input at the models' sample rate, and speech detection in it.
import { TernError } from '../engine/error.js';
import { RATE } from './rate.js';

export { joined, loudness, SpeechDetector, type SpeechOptions } from './speech.js';
export { FRAME, RATE } from './rate.js';

export interface MicrophoneOptions {
  onFrame: (frame: Float32Array) => void; // 512 samples of one channel at 16,000 a second
  onEnd?: () => void; // it was unplugged, or its permission was revoked
  deviceId?: string; // default: the browser's choice
  echoCancellation?: boolean; // remove what the loudspeaker plays (true)
  noiseSuppression?: boolean; // (true)
  autoGainControl?: boolean; // (true)
  workletUrl?: string | URL; // the URL of microphone-worklet.js; default: next to this module
}

export class Microphone {
  readonly rate = RATE;
  #closed = false;

  private constructor(private context: AudioContext, private stream: MediaStream, private node: AudioWorkletNode) {}

  // Asks for permission if needed; best called on a click, since some browsers deliver no sound without one.
  static async open({ onFrame, onEnd, deviceId, workletUrl, ...wanted }: MicrophoneOptions): Promise<Microphone> {
    const stream = await ask({ echoCancellation: true, noiseSuppression: true, autoGainControl: true, ...wanted,
      ...(deviceId === undefined ? {} : { deviceId: { exact: deviceId } }) });
    const context = new AudioContext();
    try {
      await context.audioWorklet.addModule(workletUrl ?? new URL('./microphone-worklet.js', import.meta.url));
      const node = new AudioWorkletNode(context, 'tern-microphone', { numberOfOutputs: 0 });
      const microphone = new Microphone(context, stream, node);
      node.port.onmessage = ({ data }: MessageEvent<Float32Array>) => { if (!microphone.#closed) onFrame(data); };
      for (const track of stream.getTracks()) track.onended = () => {
        microphone.close();
        onEnd?.();
      };
      context.createMediaStreamSource(stream).connect(node);
      await context.resume();
      return microphone;
    } catch (cause) {
      end(stream, context);
      throw new TernError('device', `the microphone cannot be read: ${(cause as Error).message}`, { cause });
    }
  }

  get label(): string { return this.stream.getTracks()[0]?.label ?? ''; }
  // A muted microphone stays open and delivers nothing.
  get muted(): boolean { return !this.stream.getTracks()[0]?.enabled; }
  set muted(muted: boolean) { for (const track of this.stream.getTracks()) track.enabled = !muted; }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.node.port.close();
    end(this.stream, this.context);
  }
}

const refusals: Record<string, string> = {
  NotAllowedError: 'the microphone may not be used: the browser or the user refuses it',
  NotFoundError: 'there is no microphone',
  NotReadableError: 'the microphone is in use elsewhere',
  OverconstrainedError: 'there is no such microphone',
};

async function ask(audio: MediaTrackConstraints): Promise<MediaStream> {
  const devices = navigator.mediaDevices as MediaDevices | undefined;
  if (!devices) throw new TernError('unsupported', 'there is no microphone here: browsers have it on pages over https alone');
  try {
    return await devices.getUserMedia({ audio });
  } catch (cause) {
    const { name, message } = cause as DOMException;
    throw new TernError('device', refusals[name] ?? message, { cause });
  }
}

function end(stream: MediaStream, context: AudioContext): void {
  for (const track of stream.getTracks()) track.stop();
  void context.close();
}
