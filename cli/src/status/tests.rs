use std::net::TcpListener;

use onepipe_daemon_arbiter::Avoided;

use super::*;

/// A controller's report in JSON.
const REPORT: &str = r#"{"replica":63,"incarnation":7,"epoch":4,"attachment":"shared memory lab",
"uptime_s":12.3,"store":{"is_available":false,"error":"etcd is unavailable","since_s":3.2,
"failures":3,"records_waiting":2},"attachments":["switch 1 incarnation 9"],"members":[
{"name":"process 3","incarnation":5,"state":"failed","links_up":0},
{"name":"switch 1","incarnation":9,"state":"up","links_up":2}],
"barriers":[{"port":0,"barrier_ns":1800,"commit_ns":1700,"age_ns":1500000}],
"open":[{"name":"process 3","incarnation":5,"failed_at_ns":1700,"is_exact":false,
"cause":"timed out"}],
"failures":[{"name":"process 3","incarnation":5,"failed_at_ns":1700,"is_exact":false,
"cause":"timed out"}],"leaves":[{"name":"process 2","incarnation":4,"failed_at_ns":900,
"is_exact":true,"cause":"left"}],
"frozen":[{"owner":"switch 1 incarnation 9","number":1,"peer":null,"commit_ns":1700}],
"counters":{"frames_taken":17,"pauses":3,"pause_max_ns":412000000}}"#;

/// Serves `response` to one HTTP request.
fn serve_once(response: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        // Reads the whole request: unread data would reset the connection.
        let (mut result, mut part) = (Vec::new(), [0; 4096]);
        while !result.ends_with(b"\r\n\r\n") {
            let bytes = stream.read(&mut part).expect("a question");
            assert!(bytes > 0, "the question breaks off");
            result.extend_from_slice(&part[..bytes]);
        }
        assert!(result.starts_with(b"GET /status HTTP/1.0\r\n"));
        stream.write_all(response.as_bytes()).expect("response is sent");
    });
    address
}

#[test]
fn formats_controller_report() {
    let response = format!("HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{REPORT}");
    let report = fetch(serve_once(response)).expect("a report");
    let expected = "  replica     process 63 incarnation 7, active in epoch 4, up for 12 s
  attached    shared memory lab
  store       UNAVAILABLE for 3 s: etcd is unavailable; recovery is paused, 2 records pending
  neighbours  switch 1 incarnation 9
  members     1 up, 1 failed
  barrier     port 0: 1800 ns, commits 1700 ns, 1.5 ms ago
  pauses      3, the longest 0.412 s
  member      process 3 incarnation 5: failed, 0 links up
  recovering  process 3 incarnation 5 at 1700 ns (approximately): timed out
  frozen      switch 1 incarnation 9, towards an unknown peer: commits 1700 ns
  failures    1
  failed      process 3 incarnation 5 at 1700 ns (approximately): timed out
  leaves      1
  left        process 2 incarnation 4 at 900 ns: left
";
    assert_eq!(report.table(), expected);
}

#[test]
fn distinguishes_arbiter_and_controller_reports() {
    let report = arbiter::Report {
        process: 1000,
        attachment: "switch 127.0.0.1:4410".to_owned(),
        threads: 3,
        is_primary: true,
        lag_ns: 20_000,
        lead_ns: 65_000,
        packets_lost: 9,
        faults_found: 2,
        faults_retried: 1,
        pauses: 2,
        pause_max_ns: 1_500_000_000,
        avoided: vec![Avoided::Link { rack: 3, path: 1 }, Avoided::Path { path: 2 }],
        ..Default::default()
    };
    let report = serde_json::to_string(&report).expect("serialisable");
    let response = format!("HTTP/1.0 200 OK\r\n\r\n{report}");
    let report = fetch(serve_once(response)).expect("a report");
    let expected = "  arbiter     process 1000 incarnation 0, primary in epoch 0, up for 0 s
  attached    switch 127.0.0.1:4410, 3 threads
  endpoints   0 of 0 known, 0 timed out, 0 resets
  backlog     0 timeslots of 0 pairs
  timeslots   0 requested, 0 granted, 0 advertised, 0 skipped, 0 without a path
  rejected    0, and 0 capped
  lag         20 us of a lead of 65 us, max 0 us; 0 of 0 batches late
  packets     0 received, 0 sent, 0 invalid, 0 of them by checksum; 0 from unknown endpoints, 0 from endpoints with other settings; 0 frames dropped
  faults      9 packets reported lost; 2 faults located, 1 retried; avoids the link of rack 3 to path 1, path 2
  pauses      2, the longest 1.500 s
";
    assert_eq!(report.table(), expected);
}

/// An arbiter of an older version does not report its pauses.
#[test]
fn report_without_pauses_is_read() {
    let report = serde_json::to_value(arbiter::Report::default()).expect("serialisable");
    let mut report = report;
    let fields = report.as_object_mut().expect("a report has fields");
    let removed = ["pauses", "pause_max_ns"].map(|name| fields.remove(name));
    assert_eq!(removed, [Some(0.into()), Some(0.into())]);
    let report = fetch(serve_once(format!("HTTP/1.0 200 OK\r\n\r\n{report}"))).expect("a report");
    assert!(report.table().contains("pauses      none\n"), "{}", report.table());
}

#[test]
fn explains_unexpected_responses() {
    let error =
        |response: &str| format!("{:#}", fetch(serve_once(response.to_owned())).expect_err("no"));
    assert!(error("SSH-2.0-here\r\n").starts_with("no HTTP server answers: "));
    let foreign = error("HTTP/1.0 503 Later\r\n\r\n");
    assert!(foreign.starts_with("an HTTP server that is neither a controller nor"), "{foreign}");
    assert!(foreign.contains(r#"("HTTP/1.0 503 Later")"#), "{foreign}");
    let other = error("HTTP/1.0 200 OK\r\n\r\n{\"name\":\"somebody\"}");
    assert!(other.contains("neither a controller nor an arbiter of this release"), "{other}");
    let unreachable = query("127.0.0.1:1");
    assert!(unreachable.unreachable.expect("an error").starts_with("cannot connect"));
}
