//! The contract of the command: exit codes, streams, JSON shapes, coded errors with the nearest legal values.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

/// A llama of four layers with 40 heads.
const MODEL: &str = r#"{"model_type":"llama","num_hidden_layers":4,"hidden_size":1280,"num_attention_heads":40,
"num_key_value_heads":8,"head_dim":32,"intermediate_size":4096,"vocab_size":32000,"tie_word_embeddings":false,
"max_position_embeddings":4096}"#;

const CLUSTER: &str = "1x2 A100-80G + 1x2 V100-32G @ ib:100Gb";

/// What a run of the command left behind.
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// The answer as JSON.
    #[track_caller]
    fn answer(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", self.stdout, self.stderr))
    }

    /// The errors of standard error, which must be one JSON line of the documented shape.
    #[track_caller]
    fn errors(&self) -> Vec<Value> {
        assert_eq!(self.code, 2, "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "", "an error leaves standard output empty");
        let value: Value =
            serde_json::from_str(&self.stderr).unwrap_or_else(|e| panic!("{e}: {}", self.stderr));
        let errors = value["errors"].as_array().expect("a list of errors").clone();
        assert!(!errors.is_empty());
        for error in &errors {
            let code = error["code"].as_str().expect("a code");
            assert!(code.len() == 4 && code.starts_with('E'), "{code}");
            assert!(!error["message"].as_str().expect("a message").is_empty());
            assert!(error["hint"].is_string() && error["path"].is_string());
            assert!(error["line"].is_null() || error["line"].is_u64());
        }
        errors
    }

    /// The one error, with this code.
    #[track_caller]
    fn error(&self, code: &str) -> Value {
        let errors = self.errors();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0]["code"], code, "{}", errors[0]);
        errors[0].clone()
    }
}

/// A folder of its own with the model file; the command runs in it, away from any settings of the machine.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        place.write("model.json", MODEL);
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("a file");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("a file")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_autohaap"));
        command
            .args(args)
            .current_dir(self.path())
            .env("HOME", self.path())
            .env("XDG_CONFIG_HOME", self.path())
            .stdin(Stdio::null());
        for name in [
            "AUTOHAAP_FORMAT",
            "AUTOHAAP_COLOR",
            "AUTOHAAP_JOBS",
            "AUTOHAAP_NO_PROGRESS",
            "NO_COLOR",
            "CLICOLOR_FORCE",
        ] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        Self::end(&mut self.command(args), "")
    }

    /// With `--format json` and this text on standard input.
    fn json_with(&self, args: &[&str], input: &str) -> Ended {
        let args: Vec<&str> = args.iter().copied().chain(["--format", "json"]).collect();
        Self::end(&mut self.command(&args), input)
    }

    fn json(&self, args: &[&str]) -> Ended {
        self.json_with(args, "")
    }

    /// `plan` of the small model on a cluster, JSON.
    fn plan(&self, cluster: &str, more: &[&str]) -> Ended {
        let mut args = vec![
            "plan",
            "--model",
            "model.json",
            "--cluster",
            cluster,
            "--seq",
            "512",
            "--global-batch",
            "8",
        ];
        args.extend(more);
        self.json(&args)
    }

    fn end(command: &mut Command, input: &str) -> Ended {
        if !input.is_empty() {
            command.stdin(Stdio::piped());
        }
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).expect("standard input");
        }
        let output = child.wait_with_output().expect("the command ends");
        Ended {
            code: output.status.code().expect("an exit code"),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

/// The small model planned on the mixed cluster, made once.
fn planned() -> &'static Value {
    static PLAN: OnceLock<Value> = OnceLock::new();
    PLAN.get_or_init(|| {
        let ended = Place::new().plan(CLUSTER, &[]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.answer()
    })
}

/// The planned file with other pipelines, and every unused device idle.
fn with_pipelines(pipelines: Value, idle: &[&str]) -> Value {
    let mut plan = planned().clone();
    plan["pipelines"] = pipelines;
    plan["idle"] = if idle.is_empty() {
        json!([])
    } else {
        json!([{ "devices": idle, "reason": "test" }])
    };
    plan.as_object_mut().expect("an object").remove("prediction");
    plan
}

fn stage(atoms: [usize; 2], in_flight: u32, replicas: &[(&[&str], u32, u32)]) -> Value {
    let replicas: Vec<Value> = replicas
        .iter()
        .map(|(devices, tp, rows)| json!({ "devices": devices, "tp": tp, "cp": 1, "rows": rows }))
        .collect();
    json!({ "atoms": atoms, "in_flight": in_flight, "replicas": replicas })
}

fn pipeline(micro_batch: u32, micro_batches: u32, stages: &[Value]) -> Value {
    json!([{
        "micro_batch": micro_batch,
        "micro_batches": micro_batches,
        "schedule": { "kind": "1f1b" },
        "stages": stages,
    }])
}

/// (code, message, hint) of each violation that `check` finds.
fn violations(plan: &Value) -> Vec<(String, String, String)> {
    let place = Place::new();
    place.write("plan.json", &plan.to_string());
    let ended = place.json(&["check", "plan.json"]);
    assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
    let answer = ended.answer();
    assert_eq!(answer["schema"], "autohaap/check@1");
    assert_eq!(answer["ok"], false);
    let text = |v: &Value| v.as_str().expect("text").to_owned();
    let found: Vec<_> = answer["violations"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|v| (text(&v["code"]), text(&v["message"]), text(&v["hint"])))
        .collect();
    // The text answer has the same verdict and every code.
    let screen = place.run(&["check", "plan.json"]);
    assert_eq!(screen.code, 1);
    assert!(screen.stdout.starts_with("NOT LEGAL"), "{}", screen.stdout);
    for (code, ..) in &found {
        assert!(screen.stdout.contains(code.as_str()), "{code} is missing");
    }
    found
}

#[track_caller]
fn has(found: &[(String, String, String)], code: &str, message: &str, hint: &str) {
    assert!(
        found
            .iter()
            .any(|(c, m, h)| c == code && m.contains(message) && h.contains(hint)),
        "no {code} with `{message}` and `{hint}` in {found:#?}"
    );
}

#[test]
fn a_plan_in_json() {
    let plan = planned();
    for key in [
        "schema",
        "created_by",
        "name",
        "id",
        "training",
        "model",
        "cluster",
        "profile",
        "pipelines",
        "idle",
        "prediction",
        "search",
        "alternatives",
    ] {
        assert!(!plan[key].is_null(), "no `{key}`");
    }
    assert_eq!(plan["schema"], "autohaap/plan@1");
    let prediction = &plan["prediction"];
    for key in ["step_time_s", "tokens_per_s", "mfu", "bound_s", "gap"] {
        assert!(prediction[key].is_f64(), "no number `{key}`");
    }
    assert_eq!(prediction["fits"], true);
    let step = prediction["step_time_s"].as_f64().expect("a time");
    assert!(prediction["bound_s"].as_f64().expect("a time") <= step * (1.0 + 1e-12));
    for key in ["uniform", "fastest_class", "flops_split", "memory_split"] {
        let other = &plan["alternatives"][key];
        if let Some(time) = other["step_time_s"].as_f64() {
            assert!(time >= step * (1.0 - 1e-12), "{key} is faster");
        }
    }
    // Devices in use and idle ones are all devices.
    let used = prediction["devices"].as_array().expect("a list").len();
    let idle: usize = plan["idle"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|i| i["devices"].as_array().expect("a list").len())
        .sum();
    assert_eq!(used + idle, 4);
}

#[test]
fn a_plan_is_legal_and_estimates_to_its_own_prediction() {
    let place = Place::new();
    let ended = place.plan(CLUSTER, &["-o", "plan.json"]);
    assert_eq!(ended.code, 0);
    let written: Value = serde_json::from_str(&place.read("plan.json")).expect("JSON");
    assert_eq!(written, ended.answer());
    let check = place.json(&["check", "plan.json"]);
    assert_eq!((check.code, &check.answer()["ok"]), (0, &Value::Bool(true)));
    assert_eq!(check.stderr, "");
    let estimate = place.json(&["estimate", "plan.json"]);
    assert_eq!(estimate.code, 0);
    let answer = estimate.answer();
    assert_eq!(answer["schema"], "autohaap/estimate@1");
    assert_eq!(answer["step_time_s"], written["prediction"]["step_time_s"]);
    assert_eq!(answer["violations"], json!([]));
    // The same from standard input.
    let piped = place.json_with(&["estimate", "-"], &place.read("plan.json"));
    assert_eq!(piped.stdout, estimate.stdout);
}

#[test]
fn a_plan_simulates_to_a_timeline() {
    let place = Place::new();
    assert_eq!(place.plan(CLUSTER, &["-o", "plan.json"]).code, 0);
    let written: Value = serde_json::from_str(&place.read("plan.json")).expect("JSON");
    let alone = place.json(&["simulate", "plan.json", "--no-contention"]);
    assert_eq!((alone.code, alone.stderr.as_str()), (0, ""));
    let alone = alone.answer();
    assert_eq!(alone["schema"], "autohaap/simulate@1");
    let time = |answer: &Value, key: &str| answer[key].as_f64().unwrap_or_else(|| panic!("no `{key}`"));
    let estimate = time(&written["prediction"], "step_time_s");
    assert!((time(&alone, "step_time_s") / estimate - 1.0).abs() < 1e-9);
    let ended = place.json(&[
        "simulate",
        "plan.json",
        "--trace",
        "trace.json",
        "--slow",
        "n0=2x",
    ]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let answer = ended.answer();
    assert!(time(&answer, "step_time_s") > time(&answer, "without_what_if_step_time_s"));
    let path = answer["critical_path"].as_array().expect("a path");
    assert_eq!(path.last().expect("a segment")["end_s"], answer["step_time_s"]);
    let trace: Value = serde_json::from_str(&place.read("trace.json")).expect("JSON");
    assert!(trace["traceEvents"].as_array().expect("events").len() > 10);
    // The written schedule runs as the plan's own.
    assert_eq!(
        place
            .run(&["simulate", "plan.json", "--write-schedule", "."])
            .code,
        0
    );
    let again = place.json(&[
        "simulate",
        "plan.json",
        "--no-contention",
        "--schedule",
        "schedule-0.csv",
    ]);
    if written["pipelines"].as_array().expect("a list").len() == 1 {
        assert_eq!(again.answer()["step_time_s"], alone["step_time_s"]);
    }
    let screen = place.run(&["simulate", "plan.json", "--jitter", "5%", "--depth", "+1"]);
    assert_eq!(screen.code, 0, "{}", screen.stderr);
    for line in screen.stdout.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for words in [
        "simulated",
        "what if (jitter 5%, depth +1)",
        "critical path:",
        "GiB",
    ] {
        assert!(screen.stdout.contains(words), "{words}: {}", screen.stdout);
    }
    for (flags, code) in [
        (["--slow", "n0"], "E475"),
        (["--slow", "nowhere=2x"], "E475"),
        (["--slow-link", "0.9=2x"], "E475"),
        (["--jitter", "many"], "E475"),
        (["--depth", "-1"], "E475"),
        (["--schedule", "zigzag"], "E474"),
        (["--schedule", "zb-v"], "E474"),
        (["--schedule", "missing.csv"], "E102"),
        (["--trace", "missing/trace.json"], "E103"),
    ] {
        let flags = format!("{}={}", flags[0], flags[1]);
        let ended = place.json(&["simulate", "plan.json", &flags]);
        assert_eq!(ended.code, 2, "{flags}: {}", ended.stdout);
        let errors = ended.errors();
        assert!(
            !errors.is_empty() && errors.iter().all(|e| e["code"] == code),
            "{errors:?}"
        );
    }
}

#[test]
fn nothing_fits_is_an_answer() {
    // Llama-70B full training on eight cards: the shortage is named.
    let place = Place::new();
    let args = [
        "plan",
        "--model",
        "llama-3.1-70b",
        "--cluster",
        "1x8 A100-80G",
        "--seq",
        "512",
        "--global-batch",
        "4",
        "--max-micro-batch",
        "1",
    ];
    let ended = place.json(&args);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let answer = ended.answer();
    assert_eq!(answer["schema"], "autohaap/infeasible@1");
    assert_eq!(answer["feasible"], false);
    assert_eq!(answer["stop_reason"], "finished");
    assert!(answer["proven"].is_boolean() && answer["relaxations"].is_array());
    let reasons = answer["reasons"].to_string();
    assert!(reasons.contains("GiB short"), "{reasons}");
    let screen = place.run(&args);
    assert_eq!(screen.code, 1);
    assert!(screen.stdout.contains("GiB"), "{}", screen.stdout);
}

#[test]
fn broken_plans_list_every_violation() {
    // Skipped atom, unknown and doubled devices, rows, batch, forgotten devices: all at once.
    let plan = with_pipelines(
        pipeline(
            2,
            3,
            &[
                stage([0, 2], 1, &[(&["n0:0"], 1, 2)]),
                stage([3, 6], 1, &[(&["n0:0"], 1, 1), (&["n9:0"], 1, 2)]),
            ],
        ),
        &[],
    );
    let found = violations(&plan);
    assert!(found.len() >= 6, "{found:#?}");
    has(&found, "E411", "3 of 4 blocks", "2/2 blocks");
    has(&found, "E412", "`n9:0`", "`n0:0`");
    has(&found, "E413", "already used", "`n0:1`");
    has(&found, "E414", "neither used nor idle", "idle");
    has(&found, "E416", "1 + 2", "1/1");
    has(&found, "E417", "global batch is 8", "4");
}

#[test]
fn degrees_that_do_not_fit_name_those_that_do() {
    // 40 heads on three cards: the legal degrees, and what three cards can do.
    let three = with_pipelines(
        pipeline(1, 8, &[stage([0, 6], 1, &[(&["n0:0", "n0:1", "n1:0"], 3, 1)])]),
        &["n1:1"],
    );
    let found = violations(&three);
    has(&found, "E418", "40 heads", "legal tp: 1, 2, 4, 8");
    has(&found, "E418", "40 heads", "tp 1 x 3 stages");
    // TP 8 written over two cards.
    let eight = with_pipelines(
        pipeline(
            1,
            8,
            &[
                stage([0, 3], 2, &[(&["n0:0", "n0:1"], 8, 1)]),
                stage([3, 6], 1, &[(&["n1:0", "n1:1"], 2, 1)]),
            ],
        ),
        &[],
    );
    has(&violations(&eight), "E415", "8 devices, 2 are listed", "tp 2");
}

#[test]
fn unknown_fields_of_a_plan_name_the_nearest() {
    let place = Place::new();
    let mut plan = planned().clone();
    plan["pipelines"][0]["micro_batchs"] = json!(1);
    place.write("plan.json", &plan.to_string());
    for verb in ["check", "estimate"] {
        let error = place.json(&[verb, "plan.json"]).error("E403");
        assert!(error["hint"].to_string().contains("micro_batch"), "{error}");
        assert!(
            error["path"].to_string().contains("pipelines[0].micro_batchs"),
            "{error}"
        );
        assert_eq!(error["line"], 1);
    }
    place.json(&["check", "absent.json"]).error("E102");
    place.write("cut.json", &plan.to_string()[..200]);
    assert_eq!(place.json(&["check", "cut.json"]).errors().len(), 1);
}

#[test]
fn lines_answer_in_order_and_outlive_bad_ones() {
    let place = Place::new();
    let good = |id: &str| {
        let mut plan = planned().clone();
        plan["id"] = json!(id);
        plan.to_string()
    };
    let broken = {
        let mut plan = with_pipelines(
            pipeline(1, 8, &[stage([0, 5], 1, &[(&["n0:0"], 1, 1)])]),
            &["n0:1", "n1:0", "n1:1"],
        );
        plan["id"] = json!("broken");
        plan.to_string()
    };
    let input = format!(
        "{}\n{{\"pipelines\": 3}}\n\n{}\n{broken}\n",
        good("first"),
        good("second")
    );
    let ended = Place::end(&mut place.command(&["estimate", "-", "--lines"]), &input);
    assert_eq!(
        ended.code, 1,
        "a line without an answer makes the status negative"
    );
    let lines: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("one document a line"))
        .collect();
    let ids: Vec<&Value> = lines.iter().map(|l| &l["id"]).collect();
    assert_eq!(
        ids,
        [&json!("first"), &json!(2), &json!("second"), &json!("broken")]
    );
    assert_eq!(lines[0]["step_time_s"], planned()["prediction"]["step_time_s"]);
    assert_eq!(lines[0]["fits"], true);
    assert_eq!(lines[0]["violations"], json!([]));
    assert_eq!(lines[1]["errors"][0]["code"], "E402");
    assert_eq!(lines[2]["step_time_s"], lines[0]["step_time_s"]);
    assert_eq!(lines[3]["fits"], false);
    assert!(lines[3]["step_time_s"].is_null());
    assert!(!lines[3]["violations"].as_array().expect("a list").is_empty());
    // A stream of good lines ends well.
    let ended = Place::end(&mut place.command(&["estimate", "-", "--lines"]), &good("only"));
    assert_eq!((ended.code, ended.stdout.lines().count()), (0, 1));
}

#[test]
fn every_code_is_explained() {
    let place = Place::new();
    let answer = place.json(&["explain"]).answer();
    assert_eq!(answer["schema"], "autohaap/codes@1");
    let codes = answer["codes"].as_array().expect("a list");
    assert!(codes.len() > 50);
    for code in codes {
        let id = code["code"].as_str().expect("a code");
        let ended = place.run(&["explain", id]);
        assert_eq!(ended.code, 0, "{id}");
        assert!(ended.stdout.starts_with(&format!("{id}: ")), "{}", ended.stdout);
        assert!(ended.stdout.len() > 120, "{id} has no page");
    }
    let page = place.json(&["explain", "E302"]).answer();
    assert_eq!(page["code"], "E302");
    let error = place.json(&["explain", "E3022"]).error("E106");
    assert!(error["hint"].to_string().contains("`E302`"), "{error}");
}

#[test]
fn init_overwrites_nothing() {
    let place = Place::new();
    let first = place.run(&["init", "-o", "cluster.toml"]);
    assert_eq!(first.code, 0);
    assert!(first.stderr.contains("cluster.toml") && first.stdout.is_empty());
    place.write("cluster.toml", "# mine\n");
    let error = place.json(&["init", "-o", "cluster.toml"]).error("E108");
    assert!(error["hint"].to_string().contains("--force"));
    assert_eq!(place.read("cluster.toml"), "# mine\n");
    assert_eq!(
        place.run(&["init", "-o", "cluster.toml", "--force", "-q"]).code,
        0
    );
    let written = place.read("cluster.toml");
    assert_eq!(written, place.run(&["init", "-o", "-"]).stdout);
    let error = place.json(&["init", "large"]).error("E104");
    assert!(error["hint"].to_string().contains("basic"));
    // Every template is a cluster that plans.
    for kind in ["basic", "one-node", "mixed"] {
        place.write("cluster.toml", &place.run(&["init", kind, "-o", "-"]).stdout);
        let ended = place.plan("cluster.toml", &["--max-micro-batch", "1", "--time-limit", "20s"]);
        assert_eq!(ended.code, 0, "{kind}: {}", ended.stderr);
    }
}

#[test]
fn no_answer_replaces_an_input() {
    let place = Place::new();
    place.plan(CLUSTER, &["-o", "model.json"]).error("E108");
    assert_eq!(place.read("model.json"), MODEL);
    place.write("plan.json", &planned().to_string());
    place
        .json(&["report", "plan.json", "-o", "./plan.json"])
        .error("E108");
    assert_eq!(place.read("plan.json"), planned().to_string());
}

#[test]
fn report_is_one_page_with_the_figures_of_the_plan() {
    let place = Place::new();
    let mut plan = planned().clone();
    plan["name"] = json!("<img src=x onerror=alert(1)></script>");
    place.write("plan.json", &plan.to_string());
    let ended = place.run(&["report", "plan.json", "-o", "report.html"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""), "{}", ended.stderr);
    let page = place.read("report.html");
    assert!(
        page.contains("&lt;img src=x onerror=alert(1)&gt;")
            && !page.contains("<img")
            && !page.contains("<script src")
    );
    assert!(!page.contains("http://") && !page.contains("https://"));
    let start = page.find("id=\"plan\">").expect("the embedded answer") + "id=\"plan\">".len();
    let end = start + page[start..].find("</script>").expect("its end");
    let embedded: Value = serde_json::from_str(&page[start..end]).expect("JSON");
    let step = &plan["prediction"]["step_time_s"];
    assert_eq!(&embedded["prediction"]["step_time_s"], step);
}

#[test]
fn anonymous_answers_hold_no_host_names() {
    let place = Place::new();
    place.write(
        "cluster.toml",
        "[[nodes]]\nname = \"zebra-login-7\"\ndevices = \"2 A100-80G\"\n[[nodes]]\nname = \"okapi-rack-3\"\n\
         devices = \"2 V100-32G\"\n",
    );
    let open = place.plan("cluster.toml", &[]);
    assert_eq!(open.code, 0, "{}", open.stderr);
    assert!(open.stdout.contains("zebra-login-7") && open.stdout.contains("okapi-rack-3"));
    let hidden = place.plan("cluster.toml", &["--anonymize", "-o", "plan.json"]);
    assert_eq!(hidden.code, 0, "{}", hidden.stderr);
    place.write("open.json", &open.stdout);
    let screens = [
        hidden.stdout.clone(),
        hidden.stderr.clone(),
        place.read("plan.json"),
        place.run(&["estimate", "plan.json"]).stdout,
    ];
    for text in screens {
        assert!(!text.contains("zebra") && !text.contains("okapi"), "{text}");
    }
    let answer = hidden.answer();
    assert_eq!(
        answer["prediction"]["step_time_s"],
        open.answer()["prediction"]["step_time_s"]
    );
    assert_eq!(place.json(&["check", "plan.json"]).code, 0);
    // A plan with host names can be shown and checked without them.
    let slow = place.run(&[
        "simulate",
        "open.json",
        "--anonymize",
        "--slow",
        "zebra-login-7=2x",
        "--trace",
        "t.json",
    ]);
    assert_eq!(slow.code, 0, "{}", slow.stderr);
    assert!(!(slow.stdout + &place.read("t.json")).contains("zebra"));
    for verb in ["estimate", "check", "simulate"] {
        for shown in [
            place.run(&[verb, "open.json", "--anonymize"]),
            place.json(&[verb, "open.json", "--anonymize"]),
        ] {
            let text = format!("{}{}", shown.stdout, shown.stderr);
            assert_eq!(shown.code, 0, "{text}");
            assert!(!text.contains("zebra") && !text.contains("okapi"), "{text}");
        }
    }
}

#[test]
fn pipes_and_no_color_hold_no_escape_codes() {
    let place = Place::new();
    let text = place.plan(CLUSTER, &["--format", "text"]);
    assert_eq!(text.code, 2, "a flag given twice is refused");
    let args = [
        "plan",
        "--model",
        "model.json",
        "--cluster",
        CLUSTER,
        "--seq",
        "512",
        "--global-batch",
        "8",
    ];
    let bad = ["explain", "E3022"];
    for command in [&args[..], &bad[..], &["--help"][..], &[][..]] {
        let piped = place.run(command);
        let plain = Place::end(place.command(command).env("NO_COLOR", "1"), "");
        let never = Place::end(place.command(command).args(["--color", "never"]), "");
        for ended in [&piped, &plain, &never] {
            assert!(!ended.stdout.contains('\u{1b}'), "{command:?}: {}", ended.stdout);
            assert!(!ended.stderr.contains('\u{1b}'), "{command:?}: {}", ended.stderr);
        }
    }
    let screen = place.run(&args);
    assert_eq!(screen.code, 0);
    assert!(screen.stdout.lines().count() <= 45, "{}", screen.stdout);
    assert_narrow(&screen.stdout);
    // Asked for, messages are coloured even in a pipe.
    let coloured = place.run(&["explain", "E3022", "--color", "always"]);
    assert!(coloured.stderr.contains('\u{1b}'));
}

#[track_caller]
fn assert_narrow(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn every_screen_is_at_most_100_columns_wide() {
    let place = Place::new();
    place.write("plan.json", &planned().to_string());
    let mut broken = planned().clone();
    broken["pipelines"][0]["micro_batches"] = json!(77);
    place.write("broken.json", &broken.to_string());
    let small = ["--cluster", "1x1 T4", "--model", "llama-3.1-70b"];
    let mixed = ["--cluster", CLUSTER, "--model", "model.json", "--seq", "512"];
    let plan: Vec<&str> = ["plan", "--global-batch", "8"].into_iter().chain(mixed).collect();
    let explain: Vec<&str> = plan.iter().copied().chain(["--explain"]).collect();
    let negative: Vec<&str> = ["plan", "--time-limit", "5s"].into_iter().chain(small).collect();
    for (args, code) in [
        (&plan[..], 0),
        (&explain[..], 0),
        (&negative[..], 1),
        (&["estimate", "plan.json"], 0),
        (&["check", "plan.json"], 0),
        (&["check", "broken.json"], 1),
        (&["model", "deepseek-v3"], 0),
        (&["model"], 0),
        (&["devices"], 0),
        (&["devices", "H800"], 0),
        (&["--show-settings"], 0),
        (&["explain"], 0),
        (&["explain", "E107"], 0),
    ] {
        let ended = place.run(args);
        assert_eq!(ended.code, code, "{args:?}: {}", ended.stderr);
        assert_narrow(&ended.stdout);
    }
    // What was chosen by default is named as the flag that changes it.
    let ended = place.run(&["plan", "--model", "model.json", "--cluster", CLUSTER]);
    let words: Vec<&str> = ended.stdout.split_whitespace().collect();
    let text = words.join(" ");
    for flag in [
        "by default: --seq 4096",
        "--global-batch 1024",
        "--precision fp16",
        "--zero 1-3",
        "--optimizer adam",
        "--p2p async",
        "no time limit",
    ] {
        assert!(text.contains(flag), "no `{flag}`: {}", ended.stdout);
    }
    // The reasoning names figures with their sources.
    let ended = place.run(&explain);
    for part in [
        "why the bottleneck is one",
        "A100-SXM-80GB (confidence A)",
        "peak.bf16",
        "sources",
        "bound: ",
    ] {
        assert!(ended.stdout.contains(part), "no `{part}`: {}", ended.stdout);
    }
}

#[test]
fn problems_of_all_inputs_come_together() {
    let place = Place::new();
    place.write(
        "wrong.json",
        &MODEL.replace("\"num_hidden_layers\":4", "\"num_hidden_layers\":0"),
    );
    place.write("autohaap.toml", "precision = \"bf17\"\nzero = 9\n");
    let errors = place
        .json(&[
            "plan",
            "--model",
            "wrong.json",
            "--cluster",
            "1x1 A100x",
            "--gap",
            "2",
            "--time-limit",
            "soon",
            "--space",
            "small",
        ])
        .errors();
    let found: Vec<&str> = errors.iter().filter_map(|e| e["code"].as_str()).collect();
    assert_eq!(
        found,
        ["E105", "E104", "E104", "E104", "E205", "E302"],
        "{errors:#?}"
    );
    place.write(
        "autohaap.toml",
        "precision = \"bf17\"\noptimizer = \"adamw\"\np2p = \"sync\"\n",
    );
    let errors = place.plan("1x1 A100-80G", &["--exclude", "n7"]).errors();
    let paths: Vec<&str> = errors.iter().filter_map(|e| e["path"].as_str()).collect();
    assert_eq!(&paths[..3], ["precision", "optimizer", "p2p"], "{errors:#?}");
    assert_eq!((errors.len(), &errors[3]["code"]), (4, &json!("E318")));
    assert!(errors[1]["hint"].to_string().contains("adam, sgd"), "{errors:#?}");
    let both = place
        .json(&["plan", "--model", "-", "--cluster", "-", "--no-config"])
        .error("E101");
    assert!(both["message"].to_string().contains("standard input"), "{both}");
}

#[test]
fn the_page_of_settings_lists_the_keys() {
    let place = Place::new();
    let page = place.json(&["explain", "E107"]).answer();
    let page = page["page"].as_str().expect("a page");
    let list = page.split_once("defaults of flags: ").expect("a list").1;
    let list = list.split_once(". Flags").expect("an end").0;
    let mut listed: Vec<&str> = list.split(", ").map(|k| k.trim_matches('`')).collect();
    let shown = place.json(&["--show-settings"]).answer();
    let mut shown: Vec<&str> = shown
        .as_object()
        .expect("settings")
        .keys()
        .map(String::as_str)
        .collect();
    // An unknown key is answered with the legal ones.
    place.write("bad.toml", "nothing = 1\n");
    let error = place.plan(CLUSTER, &["--config", "bad.toml"]).error("E107");
    let hint = error["hint"].as_str().expect("a hint");
    let mut legal: Vec<&str> = hint
        .split_once("Keys are ")
        .expect("the keys")
        .1
        .split(", ")
        .collect();
    listed.sort_unstable();
    shown.sort_unstable();
    legal.sort_unstable();
    assert_eq!(listed, shown);
    assert_eq!(listed, legal);
    // Each of them is accepted.
    let text = "seq = 512\nglobal_batch = 8\nprecision = \"fp16\"\nzero = 1\noptimizer = \"sgd\"\n\
                p2p = \"rendezvous\"\nmax_micro_batch = 2\njobs = 1\ntime_limit = \"60s\"\ngap = \"5%\"\n";
    assert_eq!(text.lines().count(), legal.len());
    place.write("all.toml", text);
    let ended = place.json(&[
        "plan",
        "--model",
        "model.json",
        "--cluster",
        CLUSTER,
        "--config",
        "all.toml",
    ]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let training = &ended.answer()["training"];
    assert_eq!(training["optimizer"], "sgd");
    assert_eq!(training["engine_semantics"]["p2p"], "rendezvous");
}

#[test]
fn optimizer_and_boundary_exchanges_are_flags() {
    let place = Place::new();
    place.write("plan.json", &planned().to_string());
    let estimate = |flags: &[&str]| {
        let args: Vec<&str> = ["estimate", "plan.json"].iter().chain(flags).copied().collect();
        let ended = place.json(&args);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.answer()
    };
    let optimizer = |answer: &Value| -> f64 {
        let devices = answer["devices"].as_array().expect("devices");
        devices
            .iter()
            .filter_map(|d| d["memory_bytes"]["optimizer"].as_f64())
            .sum()
    };
    let step = |answer: &Value| answer["step_time_s"].as_f64().expect("a time");
    let adam = estimate(&[]);
    let sgd = estimate(&["--optimizer", "sgd"]);
    // 4 of 12 bytes a parameter.
    assert!((optimizer(&sgd) / optimizer(&adam) - 1.0 / 3.0).abs() < 1e-9);
    let blocking = estimate(&["--p2p", "rendezvous"]);
    assert!(step(&blocking) >= step(&adam) * (1.0 - 1e-12));
    // The stream answers the same.
    let line = format!("{}\n", planned());
    let ended = place.json_with(&["estimate", "-", "--lines", "--p2p", "rendezvous"], &line);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!((step(&ended.answer()) / step(&blocking) - 1.0).abs() < 1e-9);
    let planned = place.plan(CLUSTER, &["--optimizer", "sgd", "--p2p", "rendezvous"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert_eq!(planned.answer()["training"]["optimizer"], "sgd");
    place.plan(CLUSTER, &["--optimizer", "adamw"]).error("E101");
}

#[test]
fn anonymous_streams_hold_no_host_names() {
    let place = Place::new();
    place.write(
        "cluster.toml",
        "[[nodes]]\nname = \"zebra-login-7\"\ndevices = \"2 A100-80G\"\n[[nodes]]\nname = \"okapi-rack-3\"\n\
         devices = \"2 V100-32G\"\n",
    );
    let good = place.plan("cluster.toml", &[]).answer();
    let mut twice = good.clone();
    let device = twice["pipelines"][0]["stages"][0]["replicas"][0]["devices"][0].clone();
    twice["idle"] = json!([{ "devices": [device], "reason": "test" }]);
    let mut foreign = good.clone();
    foreign["pipelines"][0]["stages"][0]["replicas"][0]["devices"][0] = json!("zebra-login-7:9");
    let mut broken = good.clone();
    broken["pipelines"][0]["stages"][0]["atoms"] = json!("zebra-login-7");
    let lines = [&good, &twice, &foreign, &broken, &good]
        .map(ToString::to_string)
        .join("\n");
    let open = place.json_with(&["estimate", "-", "--lines"], &lines);
    assert!(open.stdout.contains("zebra-login-7"), "{}", open.stdout);
    let hidden = place.json_with(&["estimate", "-", "--lines", "--anonymize"], &lines);
    let text = format!("{}{}", hidden.stdout, hidden.stderr);
    assert!(!text.contains("zebra") && !text.contains("okapi"), "{text}");
    let parse = |t: &str| -> Vec<Value> {
        t.lines()
            .map(|l| serde_json::from_str(l).expect("a line of JSON"))
            .collect()
    };
    let (open, hidden) = (parse(&open.stdout), parse(&hidden.stdout));
    assert_eq!((open.len(), hidden.len()), (5, 5));
    for (a, b) in open.iter().zip(&hidden) {
        assert_eq!(a["step_time_s"], b["step_time_s"]);
        let codes = |v: &Value| -> Vec<Value> {
            ["violations", "errors"]
                .iter()
                .flat_map(|k| v[*k].as_array().cloned().unwrap_or_default())
                .map(|p| p["code"].clone())
                .collect()
        };
        assert_eq!(codes(a), codes(b));
    }
}

/// A search that takes long: a large mixture of experts on 768 cards.
const LONG: [&str; 6] = [
    "plan",
    "--model",
    "deepseek-v3",
    "--cluster",
    "64x8 H800 + 32x8 A800 @ ib:8x200Gb",
    "--no-config",
];

#[test]
fn the_time_limit_holds() {
    let place = Place::new();
    let began = std::time::Instant::now();
    let args: Vec<&str> = LONG.into_iter().chain(["--time-limit", "2s"]).collect();
    let ended = place.json(&args);
    // One second is promised on an idle machine; tests share theirs.
    assert!(began.elapsed().as_secs_f64() < 5.0, "{:?}", began.elapsed());
    let answer = ended.answer();
    let reason = match ended.code {
        0 => &answer["search"]["stop_reason"],
        _ => &answer["stop_reason"],
    };
    assert_eq!(reason, "time-limit", "{}", ended.stderr);
}

/// The first Ctrl-C answers with the best plan so far.
#[cfg(unix)]
#[test]
fn ctrl_c_answers_with_the_best_plan_so_far() {
    let place = Place::new();
    for seconds in [2.0, 5.0, 12.0, 30.0] {
        let child = place
            .command(&LONG)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        std::thread::sleep(std::time::Duration::from_secs_f64(seconds));
        let id = child.id().to_string();
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .expect("a signal");
        let sent = std::time::Instant::now();
        let output = child.wait_with_output().expect("the command ends");
        assert!(sent.elapsed().as_secs_f64() < 4.0, "{:?}", sent.elapsed());
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {
                assert!(
                    stdout.contains("stopped by Ctrl-C: the best plan so far"),
                    "{stdout}"
                );
                assert!(stdout.contains("not reproducible"), "{stdout}");
                return;
            }
            // Too early for any plan: said so, and the next round waits longer.
            Some(130) => assert!(stderr.contains("interrupted before any plan"), "{stderr}"),
            // Before the handler was set.
            None => {}
            code => panic!("{code:?}: {stdout}{stderr}"),
        }
    }
    panic!("no plan in half a minute");
}

#[test]
fn usage_errors_have_exit_code_two() {
    let place = Place::new();
    let nothing = place.run(&[]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (2, ""));
    assert!(nothing.stderr.contains("Usage"));
    let error = place.json(&["planm"]).error("E101");
    assert!(error["hint"].to_string().contains("plan"), "{error}");
    place.json(&["plan", "--model", "model.json"]).error("E101");
    place.plan("1x1 T4", &["--zero", "7"]).error("E101");
    place.plan("1x1 T4", &["--jobs", "0"]).error("E101");
    assert_eq!(place.run(&["--help"]).code, 0);
    let version = place.json(&["--version"]);
    assert_eq!(version.code, 0);
    assert_eq!(version.answer()["plan_schema"], "autohaap/plan@1");
    // Without JSON the same problem is a compiler-like message.
    let text = place.run(&["explain", "E3022"]);
    assert!(
        text.stderr.starts_with("error[E106]: ") && text.stderr.contains("\nhint: "),
        "{}",
        text.stderr
    );
}

#[test]
fn bad_values_name_legal_ones() {
    let place = Place::new();
    for gap in ["2", "0", "-1%", "100%", "nan", "two"] {
        let error = place.plan(CLUSTER, &[&format!("--gap={gap}")]).error("E104");
        assert_eq!(error["path"], "--gap", "{gap}");
        assert!(error["hint"].to_string().contains("2%"));
    }
    for time in ["3parsecs", "0s", "-1s", "inf", ""] {
        let error = place
            .plan(CLUSTER, &[&format!("--time-limit={time}")])
            .error("E104");
        assert_eq!(error["path"], "--time-limit", "{time}");
        assert!(error["hint"].to_string().contains("30s"));
    }
    // Three unknown restrictions, three problems.
    let errors = place
        .plan(
            CLUSTER,
            &[
                "--engine",
                "megatorn",
                "--space",
                "uniformm",
                "--cost-model",
                "guess",
            ],
        )
        .errors();
    let paths: Vec<&Value> = errors.iter().map(|e| &e["path"]).collect();
    assert_eq!(paths, ["--engine", "--space", "--cost-model"]);
    assert!(errors.iter().all(|e| e["code"] == "E105"));
    assert!(errors[1]["hint"].to_string().contains("full"));
    place
        .json(&["check", "model.json", "--engine", "x"])
        .error("E105");
    let errors = place
        .plan(CLUSTER, &["--exclude", "n7", "--exclude", "n0:9"])
        .errors();
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|e| e["code"] == "E318"));
    assert!(errors[1]["hint"].to_string().contains("`n0:1`"));
    let error = place
        .json(&[
            "plan",
            "--model",
            "model.json",
            "--cluster",
            "1x1 T4",
            "--seq",
            "0",
        ])
        .error("E501");
    assert!(error["hint"].to_string().contains("--seq"));
    let error = place.json(&["schema", "cluster"]).error("E104");
    assert!(error["hint"].to_string().contains("plan"));
}

#[test]
fn all_problems_of_a_cluster_with_their_columns() {
    let place = Place::new();
    let errors = place.plan("1x1 A100x + 1x1 H1000 @ ob:100Gb", &[]).errors();
    let mut found: Vec<(String, u64)> = errors
        .iter()
        .map(|e| {
            (
                e["code"].as_str().expect("a code").to_owned(),
                e["column"].as_u64().expect("a column"),
            )
        })
        .collect();
    found.sort();
    let wanted = [("E302", 5), ("E302", 17), ("E309", 25)].map(|(c, n)| (c.to_owned(), n));
    assert_eq!(found, wanted);
    let hints: String = errors.iter().map(|e| e["hint"].to_string()).collect();
    for legal in ["A100-SXM-80GB", "H100-SXM-80GB", "`ib`"] {
        assert!(hints.contains(legal), "{legal} is not named");
    }
    // A file: both lines at once, each with its position.
    place.write(
        "cluster.toml",
        "[[nodes]]\nname = \"a\"\ndevices = \"2 A100x\"\n[[nodes]]\nname = \"b\"\ndevicez = \"2 V100-32G\"\n",
    );
    let errors = place.plan("cluster.toml", &[]).errors();
    let lines: Vec<Option<u64>> = errors.iter().map(|e| e["line"].as_u64()).collect();
    assert!(
        errors.len() >= 2 && lines.contains(&Some(3)) && lines.contains(&Some(6)),
        "{errors:#?}"
    );
    let error = place.plan("my-cluster", &[]).error("E102");
    assert!(error["hint"].to_string().contains("autohaap init"));
}

#[test]
fn models_that_cannot_be_read() {
    let place = Place::new();
    let plan = |model: &str| place.json(&["plan", "--model", model, "--cluster", "1x1 T4"]);
    let error = plan("llama-3.1-8bb").error("E212");
    assert!(error["hint"].to_string().contains("llama-3.1-8b"), "{error}");
    // What looks like a file is one that is missing, not a preset that is unknown.
    for path in [
        "./foo/config.json",
        "foo.json",
        "../llama-3.1-8b",
        "/models/llama/",
        "a/b/c",
        "train.sh",
    ] {
        let error = plan(path).error("E102");
        assert!(error["message"].to_string().contains(path), "{error}");
    }
    plan("meta-llama/Llama-99").error("E212");
    place.write("broken.json", "{\"model_type\": \"llama\", ");
    assert_eq!(plan("broken.json").errors().len(), 1);
    // Two values outside their range, both named with a legal one.
    place.write(
        "wrong.json",
        &MODEL
            .replace("\"num_hidden_layers\":4", "\"num_hidden_layers\":0")
            .replace("\"vocab_size\":32000", "\"vocab_size\":0"),
    );
    let errors = plan("wrong.json").errors();
    let found = Value::from(errors.clone()).to_string();
    assert!(
        errors.len() == 2 && found.contains("num_hidden_layers") && found.contains("vocab_size"),
        "{found}"
    );
    assert!(
        errors.iter().all(|e| e["code"] == "E205" && e["line"].is_u64()),
        "{found}"
    );
    assert!(
        errors
            .iter()
            .all(|e| e["hint"].to_string().contains("nearest legal value: 1")),
        "{found}"
    );
    // A value of the wrong kind.
    place.write(
        "kind.json",
        &MODEL.replace("\"intermediate_size\":4096", "\"intermediate_size\":\"wide\""),
    );
    let errors = plan("kind.json").errors();
    assert!(
        errors
            .iter()
            .any(|e| e["message"].to_string().contains("intermediate_size")),
        "{errors:?}"
    );
    std::fs::create_dir(place.path().join("empty")).expect("a folder");
    let error = plan("empty").error("E102");
    assert!(error["hint"].to_string().contains("config.json"));
}

#[test]
fn settings_files() {
    let place = Place::new();
    place.write("bad.toml", "seqq = 4\nzerro = 1\n");
    let errors = place.plan(CLUSTER, &["--config", "bad.toml"]).errors();
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|e| e["code"] == "E107"));
    assert!(errors[0]["hint"].to_string().contains("`seq`"));
    assert!(errors[1]["hint"].to_string().contains("`zero`"));
    place.write("kind.toml", "seq = \"long\"\n");
    let error = place.plan(CLUSTER, &["--config", "kind.toml"]).error("E107");
    assert_eq!(error["line"], 1);
    place.plan(CLUSTER, &["--config", "absent.toml"]).error("E102");
    // A value of the file is as bad as one of the flag, and a flag wins over it.
    place.write("gap.toml", "gap = \"half\"\n");
    place.plan(CLUSTER, &["--config", "gap.toml"]).error("E104");
    place.write("autohaap.toml", "seq = 256\n");
    let from_file = place.json(&[
        "plan",
        "--model",
        "model.json",
        "--cluster",
        "1x1 A100-80G",
        "--global-batch",
        "8",
    ]);
    assert_eq!(from_file.answer()["training"]["seq_len"], 256);
    assert_eq!(
        place.plan("1x1 A100-80G", &[]).answer()["training"]["seq_len"],
        512
    );
    let shown = place.json(&["--show-settings"]).answer();
    assert_eq!(shown["seq"]["value"], "256");
    assert!(shown["seq"]["origin"].to_string().contains("autohaap.toml"));
    assert_eq!(shown["gap"]["origin"], "default");
    let ignored = place.json(&["--show-settings", "--no-config"]).answer();
    assert_eq!(ignored["seq"]["origin"], "default");
}

#[test]
fn variables_of_the_environment_are_flags() {
    let place = Place::new();
    let ended = Place::end(
        place
            .command(&["explain", "E3022"])
            .env("AUTOHAAP_FORMAT", "json"),
        "",
    );
    ended.error("E106");
    // Before the arguments are understood, too.
    let json = |args: &[&str]| Place::end(place.command(args).env("AUTOHAAP_FORMAT", "json"), "");
    json(&["planm"]).error("E101");
    json(&["plan", "--model"]).error("E101");
    json(&[]).error("E101");
    json(&["plan", "--model", "./absent.json", "--cluster", "1x1 T4"]).error("E102");
    assert_eq!(json(&["--version"]).answer()["plan_schema"], "autohaap/plan@1");
    // The flag wins over the variable.
    let text = json(&["planm", "--format", "text"]);
    assert!(text.stderr.starts_with("error[E101]: "), "{}", text.stderr);
    let text = json(&["explain", "E3022", "--format=text"]);
    assert!(text.stderr.starts_with("error[E106]: "), "{}", text.stderr);
}

/// Checks an edited plan and answers with its violations' codes.
fn codes_of(plan: &Value) -> (i32, Vec<String>) {
    let place = Place::new();
    place.write("edited.json", &plan.to_string());
    let ended = place.json(&["check", "edited.json"]);
    let codes = ended.answer()["violations"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|v| v["code"].as_str().expect("a code").to_owned())
        .collect();
    (ended.code, codes)
}

#[test]
fn check_finds_figures_that_agree_with_each_other_but_not_with_the_plan() {
    // A step time 3 % too short, with all figures that follow from it.
    let mut plan = planned().clone();
    let prediction = &mut plan["prediction"];
    let step = prediction["step_time_s"].as_f64().expect("a time") * 0.97;
    let rate = prediction["tokens_per_s"].as_f64().expect("a rate") / 0.97;
    prediction["step_time_s"] = json!(step);
    prediction["tokens_per_s"] = json!(rate);
    prediction["bound_s"] = json!(step * 0.5);
    prediction["gap"] = json!(0.5);
    assert_eq!(codes_of(&plan), (1, vec!["E437".to_owned()]));

    for field in ["mfu", "step_time_closed_form_s"] {
        let mut plan = planned().clone();
        let value = plan["prediction"][field].as_f64().expect("a number");
        plan["prediction"][field] = json!(value * 1.01);
        assert_eq!(codes_of(&plan), (1, vec!["E437".to_owned()]), "{field}");
    }
    assert_eq!(codes_of(planned()).0, 0);
}
