//! Compiles the kernel program, with tables that the wire format defines.

fn main() {
    println!("cargo::rerun-if-changed=src/kernel");
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "kernel")]
    kernel::build();
}

#[cfg(feature = "kernel")]
mod kernel {
    use std::env;
    use std::fmt::Write;
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    use onepipe_wire::{HEADER_LEN, Opcode, header_len};

    /// The polynomial of CRC-32C, reflected.
    const POLYNOMIAL: u32 = 0x82f6_3b78;

    pub(super) fn build() {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        fs::write(out.join("tables.h"), tables()).expect("OUT_DIR can be written");
        let object = out.join("switch.bpf.o");
        let compiler = env::var_os("ONEPIPE_CLANG").unwrap_or_else(|| "clang".into());
        println!("cargo::rerun-if-env-changed=ONEPIPE_CLANG");
        let output = Command::new(&compiler)
            .args(["-target", "bpfel", "-mcpu=v2", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
            .args(["-Wno-unused-function", "-Wno-unused-parameter", "-c"])
            .arg("src/kernel/switch.bpf.c")
            .arg("-I")
            .arg(&out)
            .arg("-o")
            .arg(&object)
            .output();
        let compiler = compiler.display();
        match output {
            Err(error) => panic!(
                "cannot run `{compiler}`, which compiles the kernel program of the feature `xdp`: \
                 {error}; install it (Debian: apt-get install clang), name another one in \
                 ONEPIPE_CLANG, or build without the feature"
            ),
            Ok(output) if !output.status.success() => {
                panic!("`{compiler}` fails: {}", String::from_utf8_lossy(&output.stderr))
            }
            Ok(_) => {}
        }
    }

    /// Returns the tables of the CRC, eight bytes at a time, and the class of each opcode.
    fn tables() -> String {
        let mut text = String::from("#pragma once\nstatic const u32 CRC_TABLES[8][256] = {\n");
        let mut tables = [[0_u32; 256]; 8];
        for byte in 0..256 {
            let mut crc = byte as u32;
            for table in &mut tables {
                for _ in 0..8 {
                    crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
                }
                table[byte] = crc;
            }
        }
        for table in &tables {
            writeln!(text, "\t{{{}}},", list(table.iter())).expect("a string takes everything");
        }
        let classes: Vec<&str> = (0..=255).map(class).collect();
        let classes = list(classes.iter());
        writeln!(text, "}};\nstatic const u8 OPCODE_CLASSES[256] = {{{classes}}};")
            .expect("a string takes everything");
        text
    }

    fn list<T: ToString>(values: impl Iterator<Item = T>) -> String {
        values.map(|value| value.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Returns the member of `enum class` of switch.bpf.c for an opcode.
    fn class(code: u8) -> &'static str {
        let Ok(opcode) = Opcode::try_from(code) else { return "0" };
        match opcode {
            Opcode::Join => "4",
            opcode if opcode.is_beacon() => "3",
            opcode if opcode.is_shared() => "2",
            opcode if opcode.is_hop_only() => "6",
            _ if header_len(code) != HEADER_LEN => "5",
            opcode if opcode.is_control() => "6",
            _ => "1",
        }
    }
}
