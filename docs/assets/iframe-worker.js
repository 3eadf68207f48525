// The search runs in a worker, and browsers start none for pages of the file system: a hidden frame takes its place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const waiting = [];
      this.postMessage = (data) => waiting.push(data);
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.onload = () => {
        const inner = frame.contentWindow;
        inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
        const script = inner.document.createElement("script");
        script.src = url;
        script.onload = () => {
          this.postMessage = (data) => inner.dispatchEvent(new MessageEvent("message", {data}));
          waiting.forEach(this.postMessage);
        };
        inner.document.body.append(script);
      };
      document.body.append(frame);
    }
  };
}
