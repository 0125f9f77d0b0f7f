// Keeps a page current: at each event of the server, the page is loaded again in the background, and the parts of it
// that are marked as live are replaced. Everything works without this script.
(() => {
  "use strict";
  const path = document.body.dataset.events;
  const say = (words) => {
    const live = document.getElementById("live");
    if (live && live.textContent !== words) live.textContent = words;
  };
  if (!path || !window.EventSource) return;

  let loading = false;
  let again = false;
  const reload = async () => {
    if (loading) {
      again = true;
      return;
    }
    loading = true;
    do {
      again = false;
      try {
        const response = await fetch(location.href, { headers: { accept: "text/html" } });
        if (response.ok) replace(new DOMParser().parseFromString(await response.text(), "text/html"));
      } catch {
        say("Not connected");
      }
    } while (again);
    loading = false;
  };

  // Focus, and what was opened, stay.
  const replace = (page) => {
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = page.getElementById(part.id);
      if (!next || next.isEqualNode(part)) continue;
      const open = [...part.querySelectorAll("details")].map((details) => details.open);
      const focusable = "a, button, input, select, textarea, summary, pre";
      const focused = [...part.querySelectorAll(focusable)].indexOf(document.activeElement);
      // The nodes themselves: text is not parsed a second time.
      part.replaceChildren(...next.childNodes);
      part.querySelectorAll("details").forEach((details, at) => (details.open = open[at] ?? false));
      if (focused >= 0) part.querySelectorAll(focusable)[focused]?.focus();
    }
  };

  const events = new EventSource(path);
  events.addEventListener("open", () => say("Live"));
  events.addEventListener("changed", reload);
  events.addEventListener("error", () => say("Not connected"));
  // Times pass, even if nothing else happens.
  setInterval(() => document.visibilityState === "visible" && reload(), 30000);
})();
