//! The page with all figures, rendered by a browser.

use std::path::Path;
use std::process::{Command, Stdio};

use onepipe_bench_figures::{Experiment, Figure, Measured, Values, all, claim_results, write};
use serde::Deserialize;

/// Debian's browser, as installed by `cargo xtask test`.
const BROWSER: &str = "chromium";
/// Inserted before everything else: records errors while the page loads.
const FIRST: &str = "<script>window.wrong = [];
addEventListener('error', event => window.wrong.push(event.message
    || 'not loaded: ' + (event.target.src || event.target.href)), true);
addEventListener('unhandledrejection', event => window.wrong.push('' + event.reason));
</script>";
/// Inserted after everything else: inspects the rendered page and writes the result into it.
const LAST: &str = "<script>addEventListener('load', () => {
const wrong = window.wrong;
for (const image of document.images)
    if (!image.complete || image.naturalWidth === 0) wrong.push('an empty image: ' + image.src);
for (const link of document.querySelectorAll('a[href^=\"#\"]'))
    if (!document.getElementById(link.hash.slice(1))) wrong.push('leads nowhere: ' + link.hash);
const figures = [];
for (const picture of document.querySelectorAll('svg')) {
    picture.scrollIntoView();
    const box = picture.getBoundingClientRect();
    const dots = picture.querySelectorAll('circle, polygon');
    let visible = 0;
    for (const dot of dots) {
        const at = dot.getBoundingClientRect();
        const top = document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2);
        if (top && picture.contains(top) && top !== picture) visible += 1;
    }
    let title = picture.previousElementSibling;
    while (title && title.tagName !== 'H2') title = title.previousElementSibling;
    let below = picture.nextElementSibling;
    figures.push({
        id: title ? title.id : '', width: box.width, height: box.height, dots: dots.length, visible,
        claims: below && below.tagName === 'TABLE' ? below.rows.length - 1 : 0,
    });
}
const seen = document.createElement('pre');
seen.id = 'seen';
seen.textContent = JSON.stringify({ title: document.title, wrong, figures });
document.body.append(seen);
});</script>";

/// Result of the inspection.
#[derive(Debug, Deserialize)]
struct Seen {
    title: String,
    wrong: Vec<String>,
    figures: Vec<Picture>,
}

/// A chart as rendered.
#[derive(Debug, Deserialize)]
struct Picture {
    id: String,
    width: f64,
    height: f64,
    dots: usize,
    visible: usize,
    /// Number of claims directly below.
    claims: usize,
}

/// Returns every figure with made-up values: the paper's own, or x where it has none.
fn figures() -> Vec<Figure> {
    let measured = |experiment: &Experiment| {
        let mut measured = Measured { metric: experiment.metric, ..Measured::default() };
        for (curve, x, _) in experiment.cases(false) {
            let column = experiment.curves.iter().find(|one| one.name == curve);
            let paper = column.and_then(|one| experiment.reference.at(one.column?, x));
            let name = experiment.metric.replace("{x}", &x.to_string());
            let value = [(name, 1.1 * paper.unwrap_or(x + 1.0))];
            measured.curves.entry(curve).or_default().push((x, Values::from(value)));
        }
        measured
    };
    let figure =
        |experiment| Figure { measured: measured(&experiment), experiment, errors: vec![] };
    all().into_iter().map(figure).collect()
}

/// Renders the page with both scripts. Returns their result and the browser's console messages.
fn look(directory: &Path, html: &str) -> (Seen, Vec<String>) {
    let html = html.replacen("<head>", &format!("<head>{FIRST}"), 1);
    let html = html.replacen("</body>", &format!("{LAST}</body>"), 1);
    let page = directory.join("looked-at.html");
    std::fs::write(&page, html).expect("the directory is writable");
    let output = Command::new(BROWSER)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--window-size=1000,1400", "--dump-dom"])
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| {
            panic!("{BROWSER}: {error}; install it with `cargo xtask test` or apt-get")
        });
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{BROWSER}: {}\n{errors}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let seen = text.split("<pre id=\"seen\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let seen = seen.unwrap_or_else(|| panic!("the script did not run:\n{errors}\n{text}"));
    let seen = seen.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    let console = errors.lines().filter(|line| line.contains("CONSOLE"));
    let console = console.map(str::to_owned).collect();
    (serde_json::from_str(&seen).unwrap_or_else(|error| panic!("{error}: {seen}")), console)
}

#[test]
fn browser_shows_every_figure_without_errors() {
    let is_missing = Command::new(BROWSER).arg("--version").output().is_err();
    if is_missing && std::env::var_os("ONEPIPE_NO_INSTALL").is_some() {
        eprintln!("SKIPPED: {BROWSER} is not installed");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory can be created");
    let figures = figures();
    write(directory.path(), &figures, false).expect("the output can be written");
    let html =
        std::fs::read_to_string(directory.path().join("report.html")).expect("the page exists");
    let (seen, console) = look(directory.path(), &html);
    assert_eq!(seen.title, "onepipe: the evaluation");
    assert_eq!(seen.wrong, [""; 0]);
    assert_eq!(console, [""; 0]);
    let ids: Vec<&str> = seen.figures.iter().map(|picture| picture.id.as_str()).collect();
    let expected: Vec<&str> = figures.iter().map(|figure| figure.experiment.id).collect();
    assert_eq!(ids, expected);
    for (picture, figure) in seen.figures.iter().zip(&figures) {
        // Each curve has a sample in the legend.
        let curves = &figure.measured.curves;
        let points = curves.len() + curves.values().flatten().count();
        assert_eq!((picture.dots, picture.visible), (points, points), "{picture:?}");
        assert_eq!(
            picture.claims,
            claim_results(std::slice::from_ref(figure)).len(),
            "{picture:?}"
        );
        assert!(picture.width > 400.0 && picture.height > 250.0, "{picture:?}");
    }

    // A page with four defects: the inspection must detect them.
    let broken = html
        .replacen("<h1>", "<img src=\"missing.svg\"><script>nothing.here()</script><h1>", 1)
        .replacen("<h2 id=\"8a\">", "<h2 id=\"eight\">", 1)
        .replacen("<svg ", "<svg style=\"display:none\" ", 1);
    let (seen, console) = look(directory.path(), &broken);
    let says = |what: &str| seen.wrong.iter().any(|wrong| wrong.contains(what));
    assert!(says("not loaded: file://") && says("an empty image"), "{:?}", seen.wrong);
    assert!(says("nothing is not defined") && says("leads nowhere: #8a"), "{:?}", seen.wrong);
    assert!(console.iter().any(|line| line.contains("nothing is not defined")), "{console:?}");
    let hidden = &seen.figures[0];
    assert!(hidden.dots > 0 && hidden.visible == 0 && hidden.width == 0.0, "{hidden:?}");
}
