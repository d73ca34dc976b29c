// Two small things that need a script: refresh without a reload, and a question before a change.
"use strict";
(() => {
  const REFRESH_MS = 10000;
  const live = ["/", "/charts", "/groups", "/group"].includes(location.pathname);
  if (live) {
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    label.className = "refresh";
    label.append(box, "Refresh every 10 s");
    const main = document.querySelector("main");
    const place = () => main.prepend(label);
    place();
    let timer = 0;
    const refresh = async () => {
      try {
        const answer = await fetch(location.href, { credentials: "same-origin" });
        if (answer.redirected) { location.reload(); return; }
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.querySelector("main");
        if (fresh && !main.contains(document.activeElement.closest("form"))) {
          main.replaceChildren(...fresh.childNodes);
          place();
        }
      } catch { /* the next refresh tries again */ }
      if (box.checked) timer = setTimeout(refresh, REFRESH_MS);
    };
    box.addEventListener("change", () => {
      clearTimeout(timer);
      if (box.checked) timer = setTimeout(refresh, REFRESH_MS);
    });
  }
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });
})();
