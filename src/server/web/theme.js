// Light or dark: as the system prefers, or as the person chose here.
import { recall, remember } from './memory.js';

const THEME = 'nibble-theme';
const NAMES = { system: 'Theme: system', light: 'Theme: light', dark: 'Theme: dark' };

function chosen() {
  const theme = recall(THEME);
  return theme === 'light' || theme === 'dark' ? theme : 'system';
}

export function themeName() { return NAMES[chosen()]; }

export function startTheme() {
  if (chosen() === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen();
}

/// The next of system, light, dark; its name.
export function nextTheme() {
  const order = ['system', 'light', 'dark'];
  remember(THEME, order[(order.indexOf(chosen()) + 1) % 3]);
  startTheme();
  return themeName();
}
