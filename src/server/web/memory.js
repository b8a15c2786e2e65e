// Small texts kept in this browser (theme, last settings, key), or as long as the page where the
// browser forbids it. `session`: for this tab only.

const fallback = new Map();

function area(session) {
  try {
    return session ? window.sessionStorage : window.localStorage;
  } catch {
    return null;  // storage is switched off
  }
}

export function recall(name, session = false) {
  const from = area(session);
  return (from ? from.getItem(name) : fallback.get(name)) ?? null;
}

export function remember(name, text, session = false) {
  const to = area(session);
  try {
    if (to) return to.setItem(name, text);
  } catch { /* full: for this page then */ }
  fallback.set(name, text);
}

export function forget(name) {
  fallback.delete(name);
  const from = area(false);
  if (from) from.removeItem(name);
}
