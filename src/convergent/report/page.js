(() => {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  // No bar of buttons over the figures: one of them would offer to send the data away.
  const config = { responsive: true, displayModeBar: false };
  const flat = ["curves", "points"].filter((name) => figures[name]);
  const touched = matchMedia("(pointer: coarse)").matches;
  const gpu = Boolean(document.createElement("canvas").getContext("webgl"));

  function paint(layout) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    layout.font = { ...layout.font, color: colour("--faint"), family: getComputedStyle(document.body).fontFamily };
    layout.hoverlabel = { bgcolor: colour("--paper"), bordercolor: colour("--line"), font: { color: colour("--ink") } };
    for (const axis of [layout.xaxis, layout.yaxis]) {
      axis.gridcolor = colour("--line");
      axis.fixedrange = touched; // a finger on a figure scrolls the page
    }
    if (touched) layout.dragmode = false;
    return layout;
  }

  function draw(name) {
    const { data, layout } = figures[name];
    if (!gpu) data.forEach((trace) => { trace.type = "scatter"; }); // slower, but there
    Plotly.react(name, data, paint(layout), config);
  }

  function drawNetwork({ data, layout, views }) {
    if (!gpu) {
      document.querySelector(".stage").outerHTML = '<p class="note">This browser has no WebGL, which the figure needs.</p>';
      return;
    }
    layout.font.family = getComputedStyle(document.body).fontFamily;
    const { clientWidth, clientHeight } = document.getElementById("network");
    const back = Math.max(1, 0.9 * clientHeight / (clientWidth || clientHeight)); // a narrow screen looks from further away
    for (const axis of ["x", "y", "z"]) layout.scene.camera.eye[axis] *= back;
    Plotly.newPlot("network", data, layout, config);
    const buttons = [...document.querySelectorAll(".choice button")];
    buttons.forEach((button, chosen) => {
      button.addEventListener("click", () => {
        buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
        show(data, views[chosen]);
      });
    });
  }

  // In a restyle every value is a list with one entry for each trace.
  function show(data, view) {
    const tint = (on, part) => ({
      [`${on}.color`]: [view[part]],
      [`${on}.colorscale`]: [view.scale],
      [`${on}.cmin`]: [view.low],
      [`${on}.cmax`]: [view.high],
    });
    data.forEach((trace, index) => {
      if (trace.meta === "throats") Plotly.restyle("network", tint("line", "throats"), index);
      if (trace.meta === "pores") Plotly.restyle("network", { ...tint("marker", "pores"), "marker.colorbar.title.text": [view.name] }, index);
    });
  }

  flat.forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => flat.forEach(draw));
  if (figures.network) drawNetwork(figures.network);
})();
