// Registers the service worker, with which the pages open without a network, and offers its next version.
import { toast } from './dom.ts';

export function startServiceWorker(): void {
  if (!('serviceWorker' in navigator) || !window.isSecureContext) return;
  // After everything else that the page loads.
  const start = () => void register().catch((error: unknown) => console.warn('no service worker:', error));
  if (document.readyState === 'complete') start();
  else addEventListener('load', start, { once: true });
}

async function register(): Promise<void> {
  const container = navigator.serviceWorker;
  const hadOne = container.controller !== null;
  const registration = await container.register(new URL('../sw.js', import.meta.url));
  let reloading = false;
  container.addEventListener('controllerchange', () => {
    if (!hadOne || reloading) return; // the first one takes the page over without a change of files
    reloading = true;
    location.reload();
  });
  const offer = (worker: ServiceWorker | null) => {
    if (!worker || !hadOne) return;
    toast('A new version of this page is ready.', {
      label: 'Reload',
      run: () => worker.postMessage('take over'),
    });
  };
  offer(registration.waiting);
  registration.addEventListener('updatefound', () => {
    const worker = registration.installing;
    worker?.addEventListener('statechange', () => worker.state === 'installed' && offer(worker));
  });
}
