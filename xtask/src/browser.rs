//! The HTML report in a headless browser: no script errors, nothing wider than the window, all parts drawn, light, dark
//! and on paper.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::examples;

/// Names under which the browser is installed.
const NAMES: [&str; 4] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
];

/// Examples whose reports are opened: one class, two vendors, a large one.
const EXAMPLES: [&str; 4] = ["02", "05", "09", "10"];

/// Opens the reports; without a browser that can be installed, says so, and fails in CI.
pub(crate) fn run(root: &Path) -> Result<()> {
    let Some(browser) = find().or_else(install) else {
        if std::env::var_os("CI").is_some() {
            bail!("no browser: install Debian's `chromium`");
        }
        println!("browser: SKIPPED, no Chromium and no permission to install Debian's `chromium`");
        return Ok(());
    };
    let binary = examples::build(root)?;
    let folder = tempfile::tempdir()?;
    for example in examples::load(root, &EXAMPLES)? {
        let plan = folder.path().join("plan.json");
        let page = folder.path().join("report.html");
        let mut arguments = example.arguments();
        // What is tested is the page, not the plan: a few seconds suffice.
        arguments.extend(["--time-limit".into(), "6s".into(), "-o".into(), path(&plan)]);
        answer(Command::new(&binary).args(&arguments).current_dir(root))?;
        answer(Command::new(&binary).args(["report", &path(&plan), "-o", &path(&page)]))?;
        let checked = check(&browser, folder.path(), &plan, &page)
            .with_context(|| format!("report of example {}", example.name))?;
        println!("{}: {checked}", example.name);
    }
    Ok(())
}

fn path(p: &Path) -> String {
    p.display().to_string()
}

fn answer(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{command:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn find() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    NAMES
        .iter()
        .flat_map(|name| std::env::split_paths(&folders).map(move |f| f.join(name)))
        .find(|p| p.is_file())
}

fn install() -> Option<PathBuf> {
    println!("browser: installing Debian's chromium");
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "--no-install-recommends", "chromium"]);
    let installed = |c: &mut Command| c.output().is_ok_and(|o| o.status.success());
    if !installed(&mut install) {
        installed(Command::new("apt-get").arg("update"));
        installed(&mut install);
    }
    find()
}

/// What a run of the browser printed.
fn open(browser: &Path, folder: &Path, page: &Path, flags: &[String]) -> Result<(String, String)> {
    let profile = tempfile::tempdir_in(folder)?;
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--virtual-time-budget=2000",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(flags)
        .arg(format!("file://{}", page.display()))
        .output()
        .context("cannot start the browser")?;
    Ok((
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

/// All checks of one page; what was counted, in words.
fn check(browser: &Path, folder: &Path, plan: &Path, page: &Path) -> Result<String> {
    let plan: Value = serde_json::from_str(&fs::read_to_string(plan)?)?;
    let bytes = fs::metadata(page)?.len();
    ensure!(bytes < 1_000_000, "the page has {bytes} bytes");
    let mut lanes = 0;
    let mut bars = 0;
    for width in [1280, 400] {
        let flags = [format!("--window-size={width},900"), "--dump-dom".into()];
        let (dom, log) = open(browser, folder, page, &flags)?;
        if let Some(line) = log.lines().find(|l| l.contains("CONSOLE")) {
            bail!("script error or blocked load at {width} px: {line}");
        }
        ensure!(
            dom.contains("data-overflow=\"false\""),
            "wider than the window at {width} px"
        );
        ensure!(dom.contains("class=\"js\""), "scripts do not run");
        lanes = dom.matches("class=\"lane c").count();
        bars = dom.matches("class=\"track\" style=\"--limit").count();
        let paths = dom.matches("<path class=\"f\"").count();
        ensure!(
            lanes > 0 && paths >= lanes,
            "{lanes} rows of the Gantt, {paths} with forwards"
        );
        ensure!(bars > 0, "no memory bars");
        // Rows of equal pipelines may be folded; of the first pipeline all stages are there.
        let stages = plan["pipelines"][0]["stages"].as_array().map_or(0, Vec::len);
        ensure!(lanes >= stages, "{lanes} rows for {stages} stages");
        ensure!(
            dom.matches("class=\"block c").count() >= stages,
            "stages are missing in the strip"
        );
        let embedded = dom
            .split_once("id=\"plan\">")
            .and_then(|(_, rest)| rest.split_once("</script>"))
            .context("no embedded answer")?
            .0;
        let embedded: Value = serde_json::from_str(embedded).context("the embedded answer")?;
        ensure!(
            embedded["prediction"]["step_time_s"] == plan["prediction"]["step_time_s"],
            "the page and the plan differ in the step time"
        );
    }
    for (name, flag) in [
        ("light.png", "--blink-settings=preferredColorScheme=1"),
        ("dark.png", "--blink-settings=preferredColorScheme=0"),
        ("page.pdf", ""),
    ] {
        let file = folder.join(name);
        let print = if flag.is_empty() {
            "print-to-pdf"
        } else {
            "screenshot"
        };
        let mut flags = vec![
            format!("--{print}={}", file.display()),
            "--window-size=1280,2400".into(),
        ];
        if !flag.is_empty() {
            flags.push(flag.into());
        }
        open(browser, folder, page, &flags)?;
        let size = fs::metadata(&file).map_or(0, |m| m.len());
        ensure!(size > 20_000, "{name} has {size} bytes: nothing was drawn");
        fs::remove_file(file)?;
    }
    Ok(format!(
        "{} kB, {lanes} rows of the Gantt, {bars} memory bars; 1280 and 400 px, light, dark, print",
        bytes / 1000
    ))
}
