//! The example in C, and the examples in the documentation of the Python module.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns the folder of this crate.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folder that has the shared library, which is built with this test.
fn library_folder() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let folder = test.parent().expect("it lies in target/<profile>/deps");
    assert!(folder.join("libonepipe_c.so").exists(), "{}", folder.display());
    folder.to_owned()
}

/// Runs a program, and returns what it prints.
fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the program is installed");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

#[test]
fn example_in_c_prints_what_it_reads() {
    let output = tempfile::tempdir().expect("a temporary folder can be created");
    let program = output.path().join("memory");
    let library = library_folder();
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-D_DEFAULT_SOURCE"]);
    compile.arg(folder().join("examples/memory.c")).arg("-I").arg(folder().join("include"));
    compile.arg("-L").arg(&library).arg("-lonepipe_c").arg("-o").arg(&program);
    run(&mut compile);
    let said = run(Command::new(&program).env("LD_LIBRARY_PATH", &library));
    let expected = "read: hello\n\
        word: 42, before 40\n\
        status 3: cannot read bytes 60..65 of region 1 of process 0: operation 0 is refused: out \
        of bounds: the region has 64 bytes\n\
        status 1: the bytes are NULL\n";
    assert_eq!(said, expected);
}

#[test]
fn examples_in_python_print_what_the_module_says() {
    let module = folder().join("../python");
    let script = "import doctest, onepipe\n\
        result = doctest.testmod(onepipe)\n\
        print(result.attempted, result.failed)\n";
    let mut python = Command::new("python3");
    python.args(["-B", "-c", script]).current_dir(module);
    python.env("ONEPIPE_LIBRARY", library_folder().join("libonepipe_c.so"));
    let said = run(&mut python);
    let (attempted, failed) = said.trim().rsplit_once(' ').expect("two numbers");
    assert_eq!(failed, "0", "{said}");
    assert!(attempted.parse::<u32>().is_ok_and(|attempted| attempted >= 10), "{said}");
}
