// The page is whole without this: it adds search, sorting, zoom, a switch of colours and the data as a file.
"use strict";
(() => {
  const make = (name, attributes, text) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    return element;
  };
  const remembered = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
  const remember = (key, value) => { try { localStorage.setItem(key, value); } catch { /* not allowed from here */ } };

  // Colours: as the system has them, or as chosen.
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  if (["dark", "light"].includes(remembered("inquest-theme"))) root.dataset.theme = remembered("inquest-theme");
  const tools = make("div", { class: "tools" });
  const button = (text, id, act) => {
    const one = make("button", { type: "button", id }, text);
    one.addEventListener("click", act);
    tools.append(one);
    return one;
  };

  // Search: rows and calls that have all of the words.
  const search = make("input", { type: "search", id: "search", placeholder: "Search rows and calls", "aria-label": "Search rows and calls" });
  const found = make("output", { for: "search", "aria-live": "polite" });
  tools.append(search, found);
  const rows = [...document.querySelectorAll("tbody tr, .calls > li")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, at) => {
      // What explains a row goes with it.
      const text = row.className === "detail" ? texts[at] + texts[at - 1] : texts[at] + (rows[at + 1]?.className === "detail" ? texts[at + 1] : "");
      row.hidden = !words.every((word) => text.includes(word));
      count += row.hidden || row.className === "detail" ? 0 : 1;
    });
    found.textContent = words.length ? `${count} found` : "";
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      search.focus();
    }
    if (event.key === "Escape" && document.activeElement === search) {
      search.value = "";
      search.dispatchEvent(new Event("input"));
      search.blur();
    }
  });

  button("Light or dark", "theme", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember("inquest-theme", root.dataset.theme);
  });
  const data = document.getElementById("data");
  if (data) {
    button("Download the data", "download", () => {
      const link = make("a", { download: `${document.querySelector("h1").textContent}.json` });
      link.href = URL.createObjectURL(new Blob([data.textContent], { type: "application/json" }));
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
  document.querySelector("nav").after(tools);

  // Tables are sorted by a click on a heading. Units are as the page writes them; a percentile of few calls has a mark.
  const units = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, min: 6e10, h: 3.6e12, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
  const value = (text) => {
    const match = /^(-?[\d.]+)\s*([^\s*]*)\*?$/.exec(text.trim());
    return match ? Number(match[1]) * (units[match[2]] ?? 1) : null;
  };
  for (const table of document.querySelectorAll("table")) {
    table.querySelectorAll("th").forEach((heading, column) => {
      const sorter = make("button", { type: "button", class: "sort" }, heading.textContent);
      heading.replaceChildren(sorter);
      sorter.addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") !== "descending";
        table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const groups = [];
        for (const row of table.tBodies[0].rows) row.className === "detail" ? groups.at(-1).push(row) : groups.push([row]);
        const key = (group) => group[0].cells[column].textContent;
        groups.sort((a, b) => {
          const [x, y] = [value(key(a)), value(key(b))];
          const order = x !== null && y !== null ? x - y : key(a).localeCompare(key(b));
          return down ? -order : order;
        });
        table.tBodies[0].append(...groups.flat());
      });
    });
  }

  // Drawings: + and - or the wheel with Ctrl to zoom, left and right or the mouse to move, 0 or a double click to see all
  // of it, up and down to go from mark to mark. What is pointed at is said below, as its title says it.
  const UNITS = 1000;
  for (const figure of document.querySelectorAll("figure.drawing")) {
    const svg = figure.querySelector("svg");
    const plots = [...svg.querySelectorAll(".plot")].map((plot) => [plot, plot.viewBox.baseVal.height]);
    // Words over places move with these; they keep their size.
    const placed = [...svg.querySelectorAll("[data-x]")].map((one) => [one, Number(one.dataset.x), Number(one.dataset.width ?? 0)]);
    let [x, width] = [0, 1];
    const show = () => {
      width = Math.min(1, Math.max(1 / 200, width));
      x = Math.min(1 - width, Math.max(0, x));
      for (const [plot, height] of plots) plot.setAttribute("viewBox", `${x * UNITS} 0 ${width * UNITS} ${height}`);
      for (const [one, at, room] of placed) {
        const place = (at - x) / width;
        one.style.display = place + room / width < 0 || place > 1 ? "none" : "";
        one.setAttribute("x", `${100 * place}%`);
        if (room) one.setAttribute("width", `${100 * room / width}%`);
      }
    };
    const zoom = (factor, at = 0.5) => { x += width * at * (1 - 1 / factor); width /= factor; show(); };
    const move = (by) => { x += by * width; show(); };
    const reset = () => { [x, width] = [0, 1]; show(); };

    const readout = make("output", { class: "readout", "aria-live": "polite" });
    svg.after(readout);
    const titles = [...svg.querySelectorAll("title")];
    let pointed = null;
    const point = (mark) => {
      pointed?.classList.remove("pointed");
      pointed = mark;
      pointed?.classList.add("pointed");
      readout.textContent = mark?.querySelector("title").textContent ?? "";
    };
    const step = (by) => {
      const at = pointed ? titles.indexOf(pointed.querySelector("title")) + by : by > 0 ? 0 : titles.length - 1;
      point(titles[Math.min(titles.length - 1, Math.max(0, at))]?.parentNode ?? null);
    };
    // A mark of several shapes is a group.
    svg.addEventListener("pointerover", ({ target }) => {
      const mark = [target, target.parentNode].find((one) => one.querySelector(":scope > title"));
      if (mark) point(mark);
    });
    svg.addEventListener("pointerleave", () => point(null));
    figure.addEventListener("blur", () => point(null));

    figure.tabIndex = 0;
    figure.setAttribute("role", "group");
    figure.setAttribute("aria-label", `${figure.querySelector("figcaption").textContent || "Figure"}. Up and down say what the marks are, + and - zoom, left and right move, 0 shows all of it.`);
    const keys = {
      "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: reset,
      ArrowLeft: () => move(-1 / 8), ArrowRight: () => move(1 / 8), ArrowUp: () => step(-1), ArrowDown: () => step(1),
    };
    figure.addEventListener("keydown", (event) => {
      if (keys[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); keys[event.key](); }
    });
    const part = (event) => (event.clientX - svg.getBoundingClientRect().left) / svg.getBoundingClientRect().width;
    svg.addEventListener("wheel", (event) => {
      if (event.ctrlKey) { event.preventDefault(); zoom(event.deltaY < 0 ? 1.25 : 0.8, part(event)); }
    }, { passive: false });
    svg.addEventListener("dblclick", reset);
    let from = null;
    svg.addEventListener("pointerdown", (event) => { if (width < 1) { from = [part(event), x]; svg.setPointerCapture(event.pointerId); } });
    svg.addEventListener("pointermove", (event) => { if (from) { x = from[1] - (part(event) - from[0]) * width; show(); } });
    svg.addEventListener("pointerup", () => { from = null; });
  }

  // A link to what is folded away opens it.
  const open = () => {
    for (let at = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1))); at; at = at.parentElement) {
      if (at.tagName === "DETAILS") at.open = true;
    }
  };
  addEventListener("hashchange", open);
  open();
})();
