//! One page with all results, charts included.

use std::fmt::Write;

use super::{Figure, table};
use crate::verdict::Outcome;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:56rem;margin:2rem auto;\
padding:0 1rem;color:#1a1a1a}table{border-collapse:collapse;width:100%;margin:1rem 0}\
th,td{border-bottom:1px solid #ddd;padding:.35rem .5rem;text-align:left;vertical-align:top}\
.yes{color:#00723b}.no{color:#b03000}.open{color:#666}svg{max-width:100%;height:auto}\
h2{margin-top:2.5rem}";

/// Returns the page as HTML.
pub(super) fn page(figures: &[Figure], charts: &[String], is_quick: bool) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>onepipe: the evaluation</title><style>{STYLE}</style></head><body>\n\
         <h1>The evaluation of the papers, run again</h1>\n\
         <p>Lines and dots are ours, crosses of the same colour the paper's points. The link and \
         host latencies were calibrated by one curve, unordered in figure 9a; everything else is \
         predicted.{}</p>\n",
        if is_quick { " This is a quick run: fewer points." } else { "" }
    );
    claims(&mut html, &table::claim_results(figures));
    for (figure, chart) in figures.iter().zip(charts) {
        let experiment = &figure.experiment;
        let (id, title) = (experiment.id, escape(experiment.title));
        let _ = write!(
            html,
            "<h2 id=\"{id}\">{id}. {title}</h2>\n<p>The paper: {}.</p>\n{chart}\n",
            escape(experiment.headline)
        );
        for error in &figure.errors {
            let _ = writeln!(html, "<p class=\"no\">{}</p>", escape(error));
        }
    }
    html.push_str("</body></html>\n");
    html
}

fn claims(html: &mut String, claim_results: &[table::ClaimResult]) {
    html.push_str("<table><tr><th>Figure<th>Claim<th>Paper<th>Ours<th></tr>\n");
    for line in claim_results {
        let class = match line.verdict {
            Some(Outcome::Holds | Outcome::Better) => "yes",
            Some(Outcome::DoesNotHold) => "no",
            Some(Outcome::PaperContradictsItself) | None => "open",
        };
        let _ = writeln!(
            html,
            "<tr><td><a href=\"#{0}\">{0}</a><td>{1}<td>{2}<td>{3}<td class=\"{class}\">{4}</tr>",
            line.figure,
            escape(&line.claim),
            escape(&line.paper),
            escape(&line.ours),
            escape(&line.state()),
        );
    }
    html.push_str("</table>\n");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
