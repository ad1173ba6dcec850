//! One page with all results: a summary with the debts, then every chart with its claims below.

use std::fmt::Write;

use super::table::{ClaimResult, Counts, claim_results, claims_of};
use super::{Figure, QUICK};
use crate::verdict::Outcome;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:56rem;margin:2rem auto;\
padding:0 1rem;color:#1a1a1a}table{border-collapse:collapse;width:100%;margin:1rem 0}\
th,td{border-bottom:1px solid #ddd;padding:.35rem .5rem;text-align:left;vertical-align:top}\
.counts{width:auto}.counts td:last-child{text-align:right}\
.holds,.better{color:#00723b}.debt{color:#b03000}.contradiction{color:#7a5200}.open{color:#666}\
svg{max-width:100%;height:auto;display:block}h2{margin-top:2.5rem}\
@media print{svg,tr{break-inside:avoid}h2{break-after:avoid}}";

/// Returns the page as HTML. `charts` has one for each figure.
pub(super) fn page(figures: &[Figure], charts: &[String], is_quick: bool) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>onepipe: the evaluation</title><style>{STYLE}</style></head><body>\n\
         <h1>The evaluation of the papers, run again</h1>\n\
         <p>In the charts lines with markers are ours, crosses of the same colour the paper's \
         points. The link and host latencies were calibrated by one curve, unordered in figure 9a; \
         everything else is predicted.{}{}</p>\n",
        if is_quick { " " } else { "" },
        if is_quick { QUICK } else { "" },
    );
    summary(&mut html, &claim_results(figures));
    contents(&mut html, figures);
    for (figure, chart) in figures.iter().zip(charts) {
        let experiment = &figure.experiment;
        let (id, title) = (experiment.id, escape(experiment.title));
        let headline = escape(experiment.headline);
        put(&mut html, format_args!("<h2 id=\"{id}\">{id}. {title}</h2>"));
        put(&mut html, format_args!("<p>The paper: {headline}.</p>\n{chart}"));
        for error in &figure.errors {
            put(&mut html, format_args!("<p class=\"debt\">Not measured: {}</p>", escape(error)));
        }
        claims(&mut html, &claims_of(figure));
    }
    html.push_str("</body></html>\n");
    html
}

/// Writes a line.
fn put(html: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = html.write_fmt(line);
    html.push('\n');
}

/// Writes the number of claims by verdict, and lists the debts and the paper's contradictions.
fn summary(html: &mut String, results: &[ClaimResult]) {
    let Counts { hold, better, paper_contradicts_itself, do_not_hold, no_verdict } =
        Counts::of(results);
    html.push_str("<table class=\"counts\">\n");
    let rows = [
        (Some(Outcome::Holds), hold, "within the tolerance of the claim"),
        (Some(Outcome::Better), better, "ours is better than the paper's by more than that"),
        (
            Some(Outcome::PaperContradictsItself),
            paper_contradicts_itself,
            "no value can match: two numbers of the paper exclude each other",
        ),
        (Some(Outcome::DoesNotHold), do_not_hold, "the debts"),
        (None, no_verdict, "used for calibration, measured on another machine, or not measured"),
    ];
    for (verdict, count, meaning) in rows {
        let (class, name) = (class(verdict), verdict.map_or("no verdict", Outcome::name));
        put(html, format_args!("<tr><td class=\"{class}\">{name}<td>{meaning}<td>{count}</tr>"));
    }
    html.push_str("</table>\n");
    let lists = [
        (Outcome::DoesNotHold, "debts", "What does not hold"),
        (Outcome::PaperContradictsItself, "contradictions", "Where the paper contradicts itself"),
    ];
    for (outcome, id, title) in lists {
        let listed: Vec<&ClaimResult> =
            results.iter().filter(|result| result.verdict == Some(outcome)).collect();
        if listed.is_empty() {
            continue;
        }
        put(html, format_args!("<h2 id=\"{id}\">{title}</h2>"));
        html.push_str("<table><tr><th>Figure<th>Claim<th>Paper<th>Ours<th>Reason</tr>\n");
        for result in listed {
            let ClaimResult { figure, claim, paper, ours, remark, .. } = result;
            let [claim, paper, ours, remark] =
                [claim, paper, ours, remark].map(|text| escape(text));
            let link = format!("<a href=\"#{figure}\">{figure}</a>");
            put(
                html,
                format_args!("<tr><td>{link}<td>{claim}<td>{paper}<td>{ours}<td>{remark}</tr>"),
            );
        }
        html.push_str("</table>\n");
    }
}

/// Writes links to the figures.
fn contents(html: &mut String, figures: &[Figure]) {
    let link = |figure: &Figure| {
        let (id, title) = (figure.experiment.id, escape(figure.experiment.title));
        format!("<a href=\"#{id}\" title=\"{title}\">{id}</a>")
    };
    let links: Vec<String> = figures.iter().map(link).collect();
    put(html, format_args!("<p>Figures: {}</p>", links.join(", ")));
}

/// Writes the claims of a figure.
fn claims(html: &mut String, results: &[ClaimResult]) {
    if results.is_empty() {
        return;
    }
    html.push_str("<table><tr><th>Claim<th>Paper<th>Ours<th></tr>\n");
    for result in results {
        let [claim, paper, ours, state] =
            [&result.claim, &result.paper, &result.ours, &result.state()].map(|text| escape(text));
        let class = class(result.verdict);
        put(
            html,
            format_args!("<tr><td>{claim}<td>{paper}<td>{ours}<td class=\"{class}\">{state}</tr>"),
        );
    }
    html.push_str("</table>\n");
}

/// Returns the class of a verdict in the style sheet.
fn class(verdict: Option<Outcome>) -> &'static str {
    match verdict {
        Some(Outcome::Holds) => "holds",
        Some(Outcome::Better) => "better",
        Some(Outcome::PaperContradictsItself) => "contradiction",
        Some(Outcome::DoesNotHold) => "debt",
        None => "open",
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
