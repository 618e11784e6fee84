// Elements from data. Text becomes text nodes and nothing else: no value of a run is ever read as markup.
const namespace = "http://www.w3.org/2000/svg";

// h("p", {class: "x", title: "…", on: {click: f}}, "text", element, null, [more])
export function h(tag, attributes = {}, ...children) {
  const element = tag === "svg" || tag === "path" ? document.createElementNS(namespace, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// Sets text only where it differs, so that a live table does not disturb selections.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
