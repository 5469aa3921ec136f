(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");

  document.querySelectorAll("[data-copy]").forEach(function (button) {
    button.addEventListener("click", function () {
      var code = button.parentNode.querySelector("code");
      var done = function () { button.textContent = "Copied"; };
      var select = function () {
        var range = document.createRange();
        range.selectNodeContents(code);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        button.textContent = "Selected";
      };
      if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, select);
      else select();
    });
  });

  var gantt = document.getElementById("gantt");
  if (gantt) {
    var lanes = Array.prototype.slice.call(gantt.querySelectorAll(".lane:not(.axis)"));
    var spans = JSON.parse(document.getElementById("spans").textContent);
    var step = parseFloat(gantt.dataset.step);
    var ticks = document.getElementById("ticks");
    var output = document.getElementById("window");
    var tip = document.getElementById("tip");
    var UNITS = 100000;
    var names = ["forward", "backward", "weight gradient", "gradient reduction", "optimizer"];
    var from = 0, to = UNITS;
    if (lanes.length > 40) gantt.classList.add("dense");

    var time = function (units) {
      var s = units / UNITS * step;
      if (s >= 100) return s.toFixed(1) + " s";
      if (s >= 1) return s.toFixed(3) + " s";
      return (s * 1e3).toFixed(2) + " ms";
    };
    var draw = function () {
      lanes.forEach(function (lane) {
        lane.querySelector("svg").setAttribute("viewBox", from + " 0 " + (to - from) + " 20");
      });
      ticks.textContent = "";
      for (var i = 0; i <= 4; i++) {
        var tick = document.createElement("span");
        tick.style.left = 25 * i + "%";
        tick.textContent = time(from + (to - from) * i / 4);
        ticks.appendChild(tick);
      }
      output.textContent = time(from) + " to " + time(to);
    };
    var zoom = function (factor, centre) {
      var width = Math.min(UNITS, Math.max(50, (to - from) * factor));
      from = Math.max(0, Math.min(UNITS - width, centre - (centre - from) * width / (to - from)));
      to = from + width;
      draw();
    };
    var move = function (share) {
      var width = to - from;
      from = Math.max(0, Math.min(UNITS - width, from + share * width));
      to = from + width;
      draw();
    };
    var act = function (what) {
      var middle = (from + to) / 2;
      if (what === "in") zoom(0.5, middle);
      else if (what === "out") zoom(2, middle);
      else if (what === "left") move(-0.5);
      else if (what === "right") move(0.5);
      else { from = 0; to = UNITS; draw(); }
    };
    document.querySelectorAll("[data-zoom]").forEach(function (button) {
      button.addEventListener("click", function () { act(button.dataset.zoom); });
    });
    gantt.addEventListener("keydown", function (event) {
      var keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", "0": "all", Home: "all" };
      if (keys[event.key]) { act(keys[event.key]); event.preventDefault(); }
    });
    var at = function (event, svg) {
      var box = svg.getBoundingClientRect();
      return from + (event.clientX - box.left) / box.width * (to - from);
    };
    lanes.forEach(function (lane, index) {
      var svg = lane.querySelector("svg");
      svg.addEventListener("wheel", function (event) {
        zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event, svg));
        event.preventDefault();
      }, { passive: false });
      svg.addEventListener("mousemove", function (event) {
        var x = at(event, svg);
        var hit = spans[index].filter(function (s) { return s[2] <= x && x < s[3]; })[0];
        tip.textContent = lane.title + ": " + (hit
          ? names[hit[0]] + (hit[1] >= 0 ? " of micro-batch " + hit[1] : "") + ", " + time(hit[2]) + " to " + time(hit[3]) +
            " (" + time(hit[3] - hit[2]) + ")"
          : "waits at " + time(x));
      });
    });
    draw();
  }

  // For tests: whether the page fits its window.
  root.dataset.overflow = String(root.scrollWidth > root.clientWidth);
})();
