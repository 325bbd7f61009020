"use strict";

// A chart of uPlot, from the attribute data-chart: {x, y, places, lines: [{name, colour, values}], kept, log}. It draws
// in a shadow root, which a morphing swap leaves alone.
class Chart extends HTMLElement {
  static observedAttributes = ["data-chart"];

  constructor() {
    super();
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = "./static/uplot.min.css";
    const own = document.createElement("link");
    own.rel = "stylesheet";
    own.href = "./static/chart.css";
    this.place = document.createElement("div");
    this.attachShadow({ mode: "open" }).append(style, own, this.place);
    this.size = new ResizeObserver(() => this.plot?.setSize(this.room()));
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.draw(true);
  }

  connectedCallback() {
    this.draw(true);
    this.size.observe(this);
    this.dark.addEventListener("change", this.redraw);
  }

  disconnectedCallback() {
    this.size.disconnect();
    this.dark.removeEventListener("change", this.redraw);
  }

  attributeChangedCallback() {
    if (this.isConnected) this.draw(false);
  }

  room() {
    return { width: Math.max(200, this.clientWidth), height: 240 };
  }

  draw(anew) {
    const chart = JSON.parse(this.dataset.chart);
    const data = [chart.places, ...chart.lines.map((line) => line.values)];
    if (!anew && this.plot && this.plot.series.length === data.length) {
      this.plot.setData(data);
      return;
    }
    this.plot?.destroy();
    const ink = getComputedStyle(this);
    const colour = (name) => ink.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour("label"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid") }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 18 };
    const short = (value) => (value == null ? "–" : Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 }));
    const marks = (value) => (Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-4) ? value.toExponential() : String(Number(value.toPrecision(6))));
    const whole = [0, 1, 2, 3, 4, 5, 6].flatMap((power) => [1, 2, 5].map((one) => one * 10 ** power));
    const scale = chart.log ? { distr: 3, log: 2 } : {};
    const kept = (plot) => {
      if (!chart.kept) return;
      const at = plot.valToPos(chart.kept, "x", true);
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = colour("edge");
      ctx.setLineDash([4, 4]);
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
      ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textAlign = at > bbox.left + bbox.width / 2 ? "right" : "left";
      ctx.fillText(` kept: epoch ${chart.kept} `, at, bbox.top + 14 * devicePixelRatio);
      ctx.restore();
    };
    this.plot = new uPlot(
      {
        ...this.room(),
        scales: { x: { time: false, ...scale }, y: scale },
        axes: [
          { ...axis, label: chart.x, size: 34, ...(chart.log ? {} : { incrs: whole }), values: (_, found) => found.map((one) => (one == null ? "" : marks(one))) },
          { ...axis, label: chart.y, size: (_, shown) => 24 + 7 * Math.max(3, ...(shown ?? []).map((one) => one.length)), values: (_, found) => found.map((one) => (one == null ? "" : marks(one))) },
        ],
        series: [
          { label: chart.x, value: (_, value) => short(value) },
          ...chart.lines.map((line) => ({
            label: line.name,
            stroke: colour(line.colour),
            fill: undefined,
            width: 2,
            points: { show: (plot, one) => plot.data[one].length <= 60, size: line.values.filter((one) => one != null).length === 1 ? 11 : 5, fill: colour(line.colour) },
            value: (_, value) => short(value),
          })),
        ],
        hooks: { draw: [kept] },
      },
      data,
      this.place,
    );
  }
}

customElements.define("dana-chart", Chart);

// A plan belongs to the form as it was
document.addEventListener("input", (event) => {
  if (event.target.closest("#train")) document.getElementById("plan").replaceChildren();
});
