(() => {
  const kept = (store, key, value) => {
    try { // storage may be forbidden for a file
      if (value === undefined) return JSON.parse(store.getItem(key));
      store.setItem(key, JSON.stringify(value));
    } catch { /* then nothing is kept */ }
    return null;
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const wear = () => {
    root.dataset.theme = kept(localStorage_(), "crt-theme") ?? (dark.matches ? "dark" : "light");
  };
  function localStorage_() {
    try { return localStorage; } catch { return { getItem: () => "null", setItem() {} }; }
  }
  wear();
  dark.addEventListener("change", wear);
  document.getElementById("theme").addEventListener("click", () => {
    const other = root.dataset.theme === "dark" ? "light" : "dark";
    kept(localStorage_(), "crt-theme", other);
    root.dataset.theme = other; // also where storage is forbidden
  });

  const places = [...document.querySelectorAll("[data-figure]")];
  const watcher = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      figure(target).then(() => { target.style.minHeight = ""; });
    }
  }, { rootMargin: "500px" });

  let width = innerWidth;
  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (innerWidth !== width) { width = innerWidth; redraw(); } }, 200);
  });

  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const reader = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting) continue;
      for (const link of links.values()) link.classList.remove("here");
      const link = links.get(target.id);
      link.classList.add("here");
      const bar = link.parentElement; // scrolls the bar alone, never the page
      if (bar.scrollWidth > bar.clientWidth) bar.scrollLeft = link.offsetLeft - bar.offsetLeft - 40;
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const id of links.keys()) reader.observe(document.getElementById(id));

  // Figures are drawn as one comes near them and change the height of the page: the page stays at
  // the part that was chosen for some seconds, or until the reader moves.
  let goal = null;
  let leaving;
  globalThis.stayAt = (element) => {
    goal = element;
    clearTimeout(leaving);
    if (goal) leaving = setTimeout(() => { goal = null; }, 5000);
  };
  const goTo = () => stayAt(links.has(location.hash.slice(1)) ? document.getElementById(location.hash.slice(1)) : null);
  for (const link of links.values()) link.addEventListener("click", () => stayAt(document.getElementById(link.hash.slice(1))));
  for (const moved of ["wheel", "touchmove", "keydown", "pointerdown"]) addEventListener(moved, () => stayAt(null), { passive: true });
  new ResizeObserver(() => goal?.scrollIntoView({ behavior: "instant" })).observe(document.querySelector("main"));
  addEventListener("hashchange", goTo);
  goTo();

  const dialog = document.getElementById("large");
  document.getElementById("close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  // A page of a run that goes on loads itself again, but not under the hands of a reader.
  const before = kept(sessionStorage_(), "crt-before");
  function sessionStorage_() {
    try { return sessionStorage; } catch { return { getItem: () => "null", setItem() {} }; }
  }
  for (const place of places) {
    const known = before?.heights?.[place.dataset.figure];
    const height = known ?? tallness(report.figures[place.dataset.figure][0].spec) + 90;
    place.style.minHeight = `${height}px`;
    watcher.observe(place);
  }
  if (before?.y) {
    scrollTo({ top: before.y, behavior: "instant" });
    kept(sessionStorage_(), "crt-before", null);
  }
  const busy = () => document.hidden || dialog.open || !getSelection().isCollapsed ||
    ["INPUT", "SELECT"].includes(document.activeElement?.tagName);
  const again = () => {
    if (busy()) return void setTimeout(again, 2000);
    const heights = Object.fromEntries(places.map((place) => [place.dataset.figure, place.offsetHeight]));
    kept(sessionStorage_(), "crt-before", { y: scrollY, heights });
    location.reload();
  };
  if (report.refresh) setTimeout(again, 1000 * report.refresh);
})();
