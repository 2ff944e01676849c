(() => {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  // Plotly's bar of buttons is off: one of them would offer to upload the data.
  const config = { responsive: true, displayModeBar: false };
  const flat = ["points", "curves"].filter((name) => figures[name]);
  const touched = matchMedia("(pointer: coarse)").matches;
  const narrow = matchMedia("(max-width: 46rem)");
  const gpu = Boolean(document.createElement("canvas").getContext("webgl"));

  function paint(given) {
    const layout = structuredClone(given); // plotly.js writes into it
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    layout.font = { ...layout.font, color: colour("--faint"), family: getComputedStyle(document.body).fontFamily };
    layout.hoverlabel = { bgcolor: colour("--paper"), bordercolor: colour("--line"), font: { color: colour("--ink") } };
    for (const note of layout.annotations ?? []) note.font = { color: colour("--ink"), size: 13 };
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
      layout[name].gridcolor = colour("--line");
      layout[name].fixedrange = touched; // a finger on a figure scrolls the page
    }
    if (touched) layout.dragmode = false;
    return layout;
  }

  function draw(name) {
    const figure = figures[name];
    if (!gpu) figure.data.forEach((trace) => { trace.type = "scatter"; }); // slower, but visible
    Plotly.react(name, figure.data, paint((narrow.matches && figure.narrow) || figure.layout), config);
  }

  function drawNetwork(figure) {
    const { layout, views } = figure;
    if (!gpu) {
      document.querySelector(".stage").outerHTML = '<p class="note">This figure needs WebGL, which this browser does not offer.</p>';
      return;
    }
    const data = figure.data.map((trace) => (figure.spheres && trace.mode === "markers" ? spheres(trace, figure.spheres) : trace));
    layout.font.family = getComputedStyle(document.body).fontFamily;
    const { clientWidth, clientHeight } = document.getElementById("network");
    const back = Math.max(1, 0.9 * clientHeight / (clientWidth || clientHeight)); // further away where the screen is narrow
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

  // --- pores as shaded spheres: light and perspective tell near ones from far ones ---

  function spheres(trace, radius) {
    const { x, y, z, marker, ...rest } = trace;
    const ball = sphere(x.length <= 300 ? 2 : 1);
    const count = ball.points.length;
    const spread = (values, axis) => values.flatMap((value) => ball.points.map((point) => value + radius * point[axis]));
    const corner = (which) => x.flatMap((_, pore) => ball.faces.map((face) => face[which] + pore * count));
    const mesh = {
      ...rest, type: "mesh3d", mode: undefined, meta: { part: trace.meta, count },
      x: spread(x, 0), y: spread(y, 1), z: spread(z, 2), i: corner(0), j: corner(1), k: corner(2),
      flatshading: false,
      lighting: { ambient: 0.42, diffuse: 0.75, specular: 0.25, roughness: 0.45, fresnel: 0.05, facenormalsepsilon: 0, vertexnormalsepsilon: 0 },
      lightposition: { x: -1500, y: 2500, z: 3000 }, // up and to the left of the camera, and turns with it
    };
    if (typeof marker.color === "string") return { ...mesh, color: marker.color };
    const { colorscale, cmin, cmax, showscale, colorbar } = marker;
    return { ...mesh, colorscale, cmin, cmax, showscale, colorbar, intensity: repeat(marker.color, count), text: repeat(trace.text, count) };
  }

  const repeat = (values, count) => values.flatMap((value) => Array(count).fill(value));

  // An icosahedron, each triangle cut into four so many times, with all corners at distance 1 from the middle.
  function sphere(cuts) {
    const golden = (1 + Math.sqrt(5)) / 2;
    const points = [[-1, golden, 0], [1, golden, 0], [-1, -golden, 0], [1, -golden, 0]]
      .flatMap(([a, b, c]) => [[a, b, c], [c, a, b], [b, c, a]]).map(unit);
    let faces = [];
    const side = 4 / Math.hypot(...[1, golden]) ** 2; // the squared distance between neighbours
    const near = (a, b) => Math.abs(points[a].reduce((sum, value, axis) => sum + (value - points[b][axis]) ** 2, 0) - side) < 1e-6;
    for (let a = 0; a < 12; a++) for (let b = a + 1; b < 12; b++) for (let c = b + 1; c < 12; c++) {
      if (near(a, b) && near(b, c) && near(a, c)) faces.push(outward(points, [a, b, c]));
    }
    for (let cut = 0; cut < cuts; cut++) {
      const middles = new Map();
      const middle = (a, b) => {
        const key = a < b ? `${a} ${b}` : `${b} ${a}`;
        if (!middles.has(key)) middles.set(key, points.push(unit(points[a].map((value, axis) => value + points[b][axis]))) - 1);
        return middles.get(key);
      };
      faces = faces.flatMap(([a, b, c]) => {
        const [ab, bc, ca] = [middle(a, b), middle(b, c), middle(c, a)];
        return [[a, ab, ca], [b, bc, ab], [c, ca, bc], [ab, bc, ca]];
      });
    }
    return { points, faces };
  }

  function unit(point) {
    const length = Math.hypot(...point);
    return point.map((value) => value / length);
  }

  // Counterclockwise as seen from outside, so that the normals point outward.
  function outward(points, [a, b, c]) {
    const [p, q, r] = [points[a], points[b], points[c]];
    const volume = p[0] * (q[1] * r[2] - q[2] * r[1]) - p[1] * (q[0] * r[2] - q[2] * r[0]) + p[2] * (q[0] * r[1] - q[1] * r[0]);
    return volume > 0 ? [a, b, c] : [a, c, b];
  }

  // --- the views ---

  // In a restyle every value is a list with one entry for each trace.
  function show(data, view) {
    const scale = (on) => ({ [`${on}colorscale`]: [view.scale], [`${on}cmin`]: [view.low], [`${on}cmax`]: [view.high] });
    const title = (on) => ({ [`${on}colorbar.title.text`]: [view.name] });
    data.forEach((trace, index) => {
      const part = trace.meta?.part ?? trace.meta;
      if (part === "throats") Plotly.restyle("network", { ...scale("line."), "line.color": [view.throats] }, index);
      if (part !== "pores") return;
      const change = trace.type === "mesh3d"
        ? { ...scale(""), ...title(""), intensity: [repeat(view.pores, trace.meta.count)] }
        : { ...scale("marker."), ...title("marker."), "marker.color": [view.pores] };
      Plotly.restyle("network", change, index);
    });
  }

  const redraw = () => flat.forEach(draw);
  redraw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  narrow.addEventListener("change", redraw);
  if (figures.network) drawNetwork(figures.network);
})();
