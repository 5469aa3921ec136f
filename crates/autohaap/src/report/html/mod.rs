//! One self-contained HTML page about a plan: nothing is loaded from outside, tables and pictures are readable without
//! scripts, which only add zoom, hover and copying.
//!
//! The page is a template ([minijinja], escaping on) over views that the sibling modules prepare; a view holds words and
//! positions, no logic of the model.

mod facts;
mod gantt;
mod layers;
mod map;
mod memory;
mod shape;

use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use serde::Serialize;

use crate::error::Problem;
use crate::error::usage::INTERNAL;
use crate::plan::{Plan, Prediction};
use crate::simulate::Timeline;

/// What the page shows.
#[derive(Debug, Clone, Copy)]
pub struct Page<'p> {
    /// The plan.
    pub plan: &'p Plan,
    /// Its prediction: the plan's own or a fresh one.
    pub prediction: &'p Prediction,
    /// One step of it, simulated, if it could be.
    pub timeline: Option<&'p Timeline>,
    /// Commands worth copying, without a path of this machine.
    pub commands: &'p [String],
    /// Remarks on inputs and method.
    pub notes: &'p [String],
}

/// The page as text.
///
/// # Errors
/// A template that does not render is a fault of this program and reported as such.
pub fn html_page(page: &Page<'_>) -> Result<String, Problem> {
    let fault = |e: minijinja::Error| Problem::new(&INTERNAL, "report", format!("report template: {e}"));
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(fault)?;
    environment.set_syntax(syntax);
    environment
        .add_template("report.html", include_str!("report.html"))
        .map_err(fault)?;
    let shapes = shape::Shapes::of(page.plan);
    let view = View {
        style: include_str!("report.css"),
        script: include_str!("report.js"),
        facts: facts::view(page),
        layers: layers::view(page, &shapes),
        gantt: gantt::view(page, &shapes),
        memory: memory::view(page, &shapes),
        map: map::view(page, &shapes),
        plan_json: embedded(page.plan),
        commands: page.commands,
        notes: page.notes,
    };
    environment
        .get_template("report.html")
        .and_then(|t| t.render(Serde(view)))
        .map_err(fault)
}

/// What the template sees.
#[derive(Serialize)]
struct View<'p> {
    style: &'static str,
    script: &'static str,
    facts: facts::View,
    layers: layers::View,
    gantt: Option<gantt::View>,
    memory: memory::View,
    map: map::View,
    plan_json: String,
    commands: &'p [String],
    notes: &'p [String],
}

/// The plan as JSON that may stand inside a `script` element: `<` is escaped, so no closing tag can occur.
fn embedded(plan: &Plan) -> String {
    // The figures per atom and the resolved device catalogue make most of a plan file; the page shows them as tables.
    let record = serde_json::json!({
        "schema": "autohaap/report@1",
        "id": plan.id,
        "name": plan.name,
        "training": plan.training,
        "pipelines": plan.pipelines,
        "idle": plan.idle,
        "prediction": plan.prediction,
        "search": plan.search,
        "alternatives": plan.alternatives,
    });
    record.to_string().replace('<', "\\u003c")
}
