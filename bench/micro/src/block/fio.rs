//! fio, the load generator for storage.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::kv::server::output_of;

/// What fio has measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    /// Number of writes.
    pub writes: f64,
    pub rate: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Returns whether fio has an engine.
pub(super) fn has_engine(name: &str) -> bool {
    let enghelp = format!("--enghelp={name}");
    output_of(&["fio", &enghelp]).is_ok_and(|output| !output.contains("not found"))
}

/// Writes random blocks of 4 KiB for `seconds`, `depth` at a time, to the first `size` bytes of a
/// device. `engine` are the options that name the engine and the device; `environment` is a
/// setting of the environment, `NAME=VALUE`.
pub(super) fn write(
    environment: &str,
    engine: &[&str],
    (size, depth, seconds): (u64, usize, f64),
) -> Result<Figures> {
    let options = [
        "--name=writes".to_owned(),
        "--rw=randwrite".to_owned(),
        "--bs=4k".to_owned(),
        format!("--size={size}"),
        format!("--iodepth={depth}"),
        "--time_based".to_owned(),
        format!("--runtime={}ms", (seconds * 1e3).ceil()),
        // Each write has other bytes, as a disk may notice equal ones.
        "--refill_buffers".to_owned(),
        "--output-format=json".to_owned(),
    ];
    let mut command = vec!["env", environment, "fio"];
    command.extend(engine);
    command.extend(options.iter().map(String::as_str));
    let output = output_of(&command)?;
    figures_in(&output).with_context(|| format!("reading the output of fio: {output}"))
}

/// Finds the figures in the output: warnings, then a JSON object.
fn figures_in(output: &str) -> Result<Figures> {
    let start = output.find('{').context("no JSON object")?;
    let report: Value = serde_json::from_str(&output[start..])?;
    let job = &report["jobs"][0];
    let number = |path: &str| {
        job.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path}"))
    };
    ensure!(number("/error")? == 0.0, "fio's error is {}", job["error"]);
    let writes = number("/write/total_ios")?;
    ensure!(writes > 0.0, "no write ended");
    Ok(Figures {
        writes,
        rate: number("/write/iops")?,
        p50_us: number("/write/clat_ns/percentile/50.000000")? / 1e3,
        p99_us: number("/write/clat_ns/percentile/99.000000")? / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"fio: a warning
{"fio version": "fio-3.33", "jobs": [{"error": 0, "write": {"total_ios": 1000,
"iops": 500.5, "clat_ns": {"percentile": {"50.000000": 350000, "99.000000": 900000}}}}]}"#;

    #[test]
    fn reads_figures_by_their_names() {
        let figures = figures_in(OUTPUT).expect("the output of fio 3.33");
        let expected = Figures { writes: 1000.0, rate: 500.5, p50_us: 350.0, p99_us: 900.0 };
        assert_eq!(figures, expected);
    }

    #[test]
    fn rejects_other_output() {
        let failed = OUTPUT.replace("\"error\": 0", "\"error\": 5");
        let idle = OUTPUT.replace("\"total_ios\": 1000", "\"total_ios\": 0");
        let unnamed = OUTPUT.replace("99.000000", "99.5");
        for output in ["", "fio: no job", "{}", &failed, &idle, &unnamed] {
            assert!(figures_in(output).is_err(), "{output}");
        }
    }
}
