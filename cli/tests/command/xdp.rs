//! What `onepipe switch --xdp` refuses, with what to do.

use crate::program::output;

fn error_of(arguments: &[&str]) -> String {
    let output = output(&[&["switch"], arguments].concat());
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn switch_in_the_kernel_names_what_it_cannot_do() {
    let at = ["--listen", "127.0.0.1:4459"];
    if !cfg!(feature = "xdp") {
        let error = error_of(&[&at[..], &["--xdp", "lo"]].concat());
        assert!(error.contains("--features xdp"), "{error}");
        return;
    }
    for (arguments, what) in [
        (&["--listen", "127.0.0.1:4459", "--loss", "1%"][..], "injects no faults"),
        (&["--listen", "127.0.0.1:4459", "--link-rate", "100M"], "emulates no links"),
        (&["--listen", "127.0.0.1:4459", "--controllers", "1020"], "has no controllers"),
        (&["--listen", "[::1]:4459"], "IPv4"),
    ] {
        let error = error_of(&[arguments, &["--xdp", "lo"]].concat());
        assert!(error.contains(what), "{arguments:?}: {error}");
    }
    let error = error_of(&[&at[..], &["--xdp", "lo"]].concat());
    assert!(error.contains("runs no XDP program") || error.contains("CAP_NET_ADMIN"), "{error}");
    // Whether this user may load the program or not, the error says what to do.
    let error = error_of(&[&at[..], &["--xdp", "no-such-device"]].concat());
    assert!(error.contains("`ip link` lists them") || error.contains("CAP_NET_ADMIN"), "{error}");
}

#[test]
fn benchmark_of_the_kernel_names_what_it_needs() {
    let error_of = |arguments: &[&str]| {
        let output = output(&[&["bench", "order", "--xdp"], arguments].concat());
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(error_of(&["--window", "4"]).contains("excludes --window"));
    if !cfg!(feature = "xdp") {
        assert!(error_of(&[]).contains("--features xdp"));
    }
}
