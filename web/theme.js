// Chooses the palette before the first paint: the person's choice, else the system's preference.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem("switchyard-theme"); } catch { return null; } };
  const apply = () => {
    document.documentElement.dataset.theme = chosen() || (dark.matches ? "dark" : "light");
    document.dispatchEvent(new Event("themechange"));
  };
  dark.addEventListener("change", apply);
  apply();
  addEventListener("DOMContentLoaded", () => document.getElementById("theme").addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("switchyard-theme", next); } catch { /* private mode: for this page only */ }
    document.documentElement.dataset.theme = next;
    document.dispatchEvent(new Event("themechange"));
  }));
})();
