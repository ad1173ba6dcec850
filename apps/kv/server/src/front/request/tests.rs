use super::*;

fn reader() -> RequestReader {
    let options =
        FrontOptions { value_max: 40, transaction_bytes_max: 200, ..FrontOptions::default() };
    RequestReader::new(&options)
}

fn command(words: &[&str]) -> Request {
    let arguments: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let bytes = arguments.iter().map(|argument| argument.len() + ARGUMENT_OVERHEAD).sum();
    Request::Command { arguments, bytes }
}

/// Reads all requests of `bytes`, at once and byte by byte.
fn read(bytes: &[u8]) -> Vec<Request> {
    let read_in = |step: usize| {
        let (mut reader, mut input, mut requests) = (reader(), BytesMut::new(), Vec::new());
        for chunk in bytes.chunks(step) {
            input.extend_from_slice(chunk);
            while let Some(request) = reader.next(&mut input, true) {
                let is_invalid = matches!(request, Request::Invalid(_));
                requests.push(request);
                if is_invalid {
                    return requests;
                }
            }
        }
        requests
    };
    let requests = read_in(bytes.len().max(1));
    assert_eq!(read_in(1), requests);
    assert_eq!(read_in(3), requests);
    requests
}

#[test]
fn arrays_and_lines_are_requests() {
    let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n\r\nset k 'a b'\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\n";
    let expected = [command(&["GET", "k"]), command(&["set", "k", "a b"]), command(&[""])];
    assert_eq!(read(bytes), expected);
}

#[test]
fn incomplete_requests_wait() {
    for bytes in ["*", "*2\r", "*2\r\n", "*2\r\n$3\r\nGET\r\n", "*1\r\n$3\r\nGET\r", "PING"] {
        assert_eq!(read(bytes.as_bytes()), []);
    }
}

#[test]
fn bytes_that_are_not_resp_have_errors_of_redis() {
    for (bytes, error) in [
        ("*x\r\n", "invalid multibulk length"),
        ("*+1\r\n", "invalid multibulk length"),
        ("*01\r\n", "invalid multibulk length"),
        ("*1048577\r\n", "invalid multibulk length"),
        ("*99999999999999999999\r\n", "invalid multibulk length"),
        ("*1\r\nx\r\n", "expected '$', got 'x'"),
        ("*1\r\n*1\r\n", "expected '$', got '*'"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$536870913\r\n", "invalid bulk length"),
        ("get 'a\n", "unbalanced quotes in request"),
    ] {
        let requests = read(bytes.as_bytes());
        let [Request::Invalid(invalid)] = requests[..] else { panic!("{bytes:?}: {requests:?}") };
        assert_eq!(invalid.to_string(), format!("ERR Protocol error: {error}"), "{bytes:?}");
    }
}

#[test]
fn long_lines_are_refused() {
    for (prefix, error) in [
        ("a", ProtocolError::InlineLine),
        ("*", ProtocolError::ArrayLine),
        ("*1\r\n$", ProtocolError::BulkLine),
    ] {
        let mut input = BytesMut::from(prefix.as_bytes());
        input.extend_from_slice(&vec![b'1'; LINE_MAX + 1]);
        assert_eq!(reader().next(&mut input, true), Some(Request::Invalid(error)));
    }
}

#[test]
fn large_requests_are_discarded_and_the_next_follows() {
    let value = "v".repeat(41);
    let too_large = Request::TooLarge(TooLarge::Value { bytes: 41, max: 40 });
    let bytes = format!("*3\r\n$3\r\nSET\r\n$41\r\n{value}\r\n$1\r\nx\r\nPING\r\n");
    assert_eq!(read(bytes.as_bytes()), [too_large.clone(), command(&["PING"])]);
    assert_eq!(read(format!("SET k {value}\nPING\n").as_bytes()), [too_large, command(&["PING"])]);
    let many = format!("*7\r\n{}PING\r\n", "$1\r\nx\r\n".repeat(7));
    let too_large = Request::TooLarge(TooLarge::Command { max: 200 });
    assert_eq!(read(many.as_bytes()), [too_large, command(&["PING"])]);
}

#[test]
fn unauthenticated_clients_have_lower_limits() {
    for (bytes, error) in [
        ("*11\r\n", ProtocolError::UnauthenticatedArray),
        ("*1\r\n$16385\r\n", ProtocolError::UnauthenticatedBulk),
    ] {
        let mut input = BytesMut::from(bytes.as_bytes());
        assert_eq!(reader().next(&mut input, false), Some(Request::Invalid(error)));
    }
}
