// What this browser keeps between visits: judgments, the last question and vector DB; never a key.

const PREFIX = "corral.";

// Return a kept value; null without one, and in a browser that keeps nothing.
export function read(name) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name));
  } catch {
    return null;
  }
}

// Keep a value, or drop it if it is null; return false in a browser that keeps nothing.
export function write(name, value) {
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
