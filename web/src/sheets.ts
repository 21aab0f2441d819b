/**
 * The terminal writes its colours into style elements, which the policy of the page forbids: nothing that is written into
 * the page is a style. A sheet that a script of ours makes is one. So while the terminal puts itself together, a new style
 * element is an element that stands for such a sheet.
 */

export function withSheets(work: () => void): void {
  const plain = document.createElement.bind(document);
  const make = (name: string, options?: ElementCreationOptions) => (name === "style" ? sheetElement() : plain(name, options));
  document.createElement = make as typeof document.createElement;
  try {
    work();
  } finally {
    // What is left is the browser's own.
    delete (document as Partial<Document>).createElement;
  }

  /** What is written into it is in force until it is removed. */
  function sheetElement(): HTMLElement {
    const sheet = new CSSStyleSheet();
    const element = plain("span");
    element.hidden = true;
    Object.defineProperty(element, "textContent", {
      set(text: string) {
        sheet.replaceSync(text);
        if (!document.adoptedStyleSheets.includes(sheet)) document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
      },
    });
    const remove = element.remove.bind(element);
    element.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
      remove();
    };
    return element;
  }
}
