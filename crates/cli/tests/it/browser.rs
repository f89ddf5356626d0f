//! Pages in a browser: every figure is drawn without an error, hostile texts do nothing, and a page of many
//! ranks stays short.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pathline_stub::need::missing;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::unwrapped;

/// Browsers that print the page as it is after its scripts.
const BROWSERS: [&str; 4] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

/// Records errors, before any other script of the page.
const BEFORE: &str = "<script>window.probe = { errors: [] };
addEventListener('error', (event) => probe.errors.push(event.message));
addEventListener('unhandledrejection', (event) => probe.errors.push(String(event.reason)));</script>";

/// Measures the page when it is open, draws all figures as a printer does, and leaves only the answer.
const AFTER: &str = "<script>addEventListener('load', () => setTimeout(() => {
  const root = document.documentElement;
  const count = () => document.querySelectorAll('*').length;
  probe.nodes = count();
  probe.height = root.scrollHeight;
  probe.wide = root.scrollWidth;
  probe.end = Math.round(document.querySelector('main').getBoundingClientRect().height + 60);
  dispatchEvent(new Event('beforeprint'));
  probe.figures = Number(root.dataset.figures);
  probe.drawn = Number(root.dataset.drawn || 0);
  probe.panes = [...document.querySelectorAll('.pane')].filter((pane) => pane.querySelector('canvas,td,.bar,.nothing,.histogram')).length;
  probe.sick = document.querySelectorAll('td.sick').length;
  document.querySelector('[data-item]')?.dispatchEvent(new Event('mouseenter'));
  probe.tip = document.getElementById('tip').textContent;
  for (const details of document.querySelectorAll('.behind')) details.open = true;
  setTimeout(() => {
    probe.tables = document.querySelectorAll('.data table').length;
    dispatchEvent(new Event('afterprint'));
    const text = JSON.stringify(probe);
    root.replaceChildren(document.createElement('body'));
    document.body.textContent = text;
  }, 200);
}, 300));</script>";

fn browser() -> Option<PathBuf> {
    // Chromium reserves terabytes of addresses and ends without them.
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let is_limited =
        limits.lines().any(|l| l.starts_with("Max address space") && !l.contains("unlimited"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut all = BROWSERS.iter().flat_map(|name| folders.iter().map(move |at| at.join(name)));
    let found = all.find(|file| file.is_file()).filter(|_| !is_limited);
    if found.is_none() {
        missing("browser", if is_limited { "ulimit -v is set" } else { "no Chromium on PATH" });
    }
    found
}

/// What the page is like in a window of 1280 x `height` pixels.
fn open(browser: &Path, page: &Path, height: u32) -> Value {
    let folder = TempDir::new().unwrap();
    let html = fs::read_to_string(page).unwrap();
    let html = html.replacen("<style>", &format!("{BEFORE}<style>"), 1);
    let (start, end) = html.rsplit_once("</body>").unwrap();
    let probed = folder.path().join("page.html");
    fs::write(&probed, format!("{start}{AFTER}</body>{end}")).unwrap();
    let window = format!("--window-size=1280,{height}");
    let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
    let quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
    let silent =
        ["--disable-background-networking", "--disable-component-update", "--disable-sync"];
    let output = Command::new(browser)
        .args(quiet)
        .args(silent)
        .args([&window, &profile, "--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("file://{}", probed.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let answer = dom.split_once("<body>").and_then(|(_, rest)| rest.split_once("</body>"));
    let err = unwrapped(&output.stderr);
    let (answer, _) = answer.unwrap_or_else(|| panic!("{}: {err} {dom:.1000}", page.display()));
    serde_json::from_str(&quick_xml::escape::unescape(answer).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}: {answer:.1000}", page.display()))
}

/// Opens a page in a window of usual height and checks what holds for each; returns what it is like.
fn check(browser: &Path, page: &Path) -> Value {
    check_in(browser, page, 900)
}

/// The same in a window of any height: what is in the window is drawn from the start.
fn check_in(browser: &Path, page: &Path, height: u32) -> Value {
    let seen = open(browser, page, height);
    let name = page.display();
    assert_eq!(seen["errors"], serde_json::json!([]), "{name}");
    let number = |key: &str| seen[key].as_u64().unwrap();
    assert!(number("figures") > 0, "{name}: {seen}");
    assert_eq!(
        (number("drawn"), number("panes")),
        (number("figures"), number("figures")),
        "{name}: {seen}"
    );
    assert!(number("tables") > 0, "{name}: {seen}");
    assert!(number("nodes") < 20_000, "{name}: {seen}");
    assert!(number("wide") <= 1280, "{name}: {seen}");
    assert_eq!(seen["hostile"], Value::Null, "{name}");
    let tip = seen["tip"].as_str().unwrap();
    assert!(tip.is_empty() || tip.contains("median"), "{name}: {tip}");
    assert!(!tip.contains("[object"), "{name}: {tip}");
    seen
}

fn pathline(args: &[&str]) {
    let output =
        Command::new(assert_cmd::cargo::cargo_bin!("pathline")).args(args).output().unwrap();
    // A sick node ends with 1, one without peers with 3.
    let err = unwrapped(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "{args:?}: {err}");
}

fn fixture(name: &str) -> String {
    format!("{}/../../fixtures/{name}.jsonl.gz", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn pages_of_models_draw_all_figures() {
    let Some(browser) = browser() else { return };
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    pathline(&["run", "-m", "mi250x", "-q", "--out", &file("node")]);
    assert_eq!(check(&browser, Path::new(&file("node/report.html")))["sick"], 0);

    let shown = Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
        .args(["model", "show", "mi250x"])
        .output()
        .unwrap();
    let fault = "\n[[fault]]\nelement = \"gpu4-gpu6\"\nkind = \"speed\"\nshare = 0.5\n";
    fs::write(file("sick.toml"), String::from_utf8(shown.stdout).unwrap() + fault).unwrap();
    pathline(&["run", "-m", &file("sick.toml"), "-q", "--suite", "pairs", "--out", &file("sick")]);
    let sick = check(&browser, Path::new(&file("sick/report.html")));
    assert!(sick["sick"].as_u64() > Some(5), "{sick}");

    pathline(&["model", "check", "--machine", "mi250x", "-o", &file("check.html")]);
    check(&browser, Path::new(&file("check.html")));
}

#[test]
fn a_page_of_eight_ranks_is_short() {
    let Some(browser) = browser() else { return };
    let dir = TempDir::new().unwrap();
    let run = dir.path().join("ranks");
    pathline(&["run", "-m", "mi250x", "--ranks", "8", "-q", "--out", run.to_str().unwrap()]);
    // In a window higher than the page every frame is drawn.
    let seen = check_in(&browser, &run.join("report.html"), 12_000);
    // 170 of them are the table of HSA_ENABLE_SDMA=0 by size.
    assert!(seen["end"].as_u64() <= Some(8_000), "{seen}");
}

#[test]
fn pages_of_hardware_draw_all_figures() {
    let Some(browser) = browser() else { return };
    let dir = TempDir::new().unwrap();
    let page = dir.path().join("page.html");
    let to = ["-o", page.to_str().unwrap()];
    let runs = ["h200-x4", "h200-x4-again", "h200-storage"].map(fixture);
    pathline(&[&["report", &runs[0]], &to[..]].concat());
    check(&browser, &page);
    pathline(&[&["report", &runs[2]], &to[..]].concat());
    check(&browser, &page);
    pathline(&[&["report", &runs[0], &runs[1]], &to[..]].concat());
    check(&browser, &page);
}

/// Replaces every text that names no case and no unit by markup that would run.
fn poison(value: &mut Value, key: &str) {
    const FREE: [&str; 7] = ["host", "version", "why", "error", "cpu_model", "kernel", "name"];
    match value {
        Value::String(text) if FREE.contains(&key) => {
            *text = "</script></noscript><img src=x onerror='probe.hostile=1'>\
                     <script>probe.hostile=2</script><!--"
                .to_owned();
        }
        Value::Array(all) => all.iter_mut().for_each(|value| poison(value, key)),
        Value::Object(all) => all.iter_mut().for_each(|(key, value)| poison(value, key)),
        _ => {}
    }
}

#[test]
fn hostile_texts_do_nothing() {
    let Some(browser) = browser() else { return };
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    pathline(&["run", "-m", "mi250x", "--suite", "latency,managed", "-q", "--out", &file("run")]);
    let lines = fs::read_to_string(file("run/run.jsonl")).unwrap();
    let hostile = lines.lines().map(|line| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        poison(&mut value, "");
        value.to_string() + "\n"
    });
    fs::write(file("hostile.jsonl"), hostile.collect::<String>()).unwrap();
    pathline(&["report", &file("hostile.jsonl"), "-o", &file("hostile.html")]);
    let page = fs::read_to_string(file("hostile.html")).unwrap();
    assert!(page.contains("&lt;img src=x onerror"), "the texts are on the page");
    check(&browser, Path::new(&file("hostile.html")));
}
